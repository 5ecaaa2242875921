"""`suite`: every candidate of every problem, and the score."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_eval_client.cli import show_suite
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.options import options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.errors import CallerError, KernelEvalError
from kernel_eval_client.suites import Case, Outcome, cases, read
from kernel_eval_client.suites.book import Book, key_of


def suite(session: Session, given: argparse.Namespace) -> Exit:
    """Judges what is not in the results file yet; as JSON a line for each candidate, and one with the scores."""
    problems = read(given.suite, given.candidates, layout=given.layout, small=given.small)
    every = list(cases(problems, options(given)))
    chosen, unmatched = [case for case in every if _wanted(case, given)], _unmatched(every, given)
    if not chosen:
        why = "; ".join(unmatched) or "--only, --level and --candidate leave out all of them"
        raise CallerError(f"no problem is left: {why}")
    for told in unmatched:
        session.progress.say(told, style="yellow")
    if given.list:
        return _listed(session, chosen)
    path = given.results or Path(f"{Path(given.suite).resolve().name}.results.jsonl")
    with Book(path, again=given.again) as book:
        kept = sum(case.submission is not None and key_of(case.submission) in book.results for case in chosen)
        if kept:
            session.progress.say(f"{kept} of {len(chosen)} are in {path} and are not judged again (--again does)")
        try:
            errors = _judged(session, chosen, book, given)
        except KeyboardInterrupt:
            session.progress.say(f"Stopped. What is judged is in {path}: the same command goes on there.")
            raise
        outcomes = [_outcome(case, book, errors) for case in chosen]
    groups = show_suite.groups(outcomes)
    if session.as_json:
        for case, outcome in zip(chosen, outcomes, strict=True):
            session.write(_line(case, outcome))
        session.write({"suite": str(given.suite), "scores": {name: one.to_dict() for name, one in groups.items()}})
    else:
        show_suite.table(session.out, outcomes)
        show_suite.scores(session.out, groups, outcomes)
        session.progress.say(f"Results are in {path}.", style="dim")
    return _exit(outcomes, errors)


def _wanted(case: Case, given: argparse.Namespace) -> bool:
    by_name = not given.only or any(fnmatch.fnmatch(case.problem.name, each) for each in given.only)
    by_level = not given.level or case.problem.level in given.level
    return by_name and by_level and (not given.candidate or case.candidate.label in given.candidate)


def _unmatched(every: Sequence[Case], given: argparse.Namespace) -> list[str]:
    """What was asked for and is nowhere in the suite."""
    names, labels = ({case.problem.name for case in every}, {case.candidate.label for case in every})
    levels = {case.problem.level for case in every}
    return [
        *(f"--only {each} is no problem's name" for each in given.only or () if not fnmatch.filter(names, each)),
        *(f"--level {each} is no problem's" for each in given.level or () if each not in levels),
        *(f"--candidate {each} is nobody's name" for each in given.candidate or () if each not in labels),
    ]


def _listed(session: Session, chosen: Sequence[Case]) -> Exit:
    if session.as_json:
        for case in chosen:
            session.write(
                {"problem": case.problem.name, "level": case.problem.level, "about": case.problem.about}
                | {"candidate": case.candidate.label, "refused": case.refused}
            )
    else:
        show_suite.listing(session.out, chosen)
    return Exit.PASSED


def _judged(
    session: Session, chosen: Sequence[Case], book: Book, given: argparse.Namespace
) -> dict[str, KernelEvalError]:
    """The errors by key; results go to the book as they come."""
    left = {key_of(case.submission): case for case in chosen if case.submission is not None}
    left = {key: case for key, case in left.items() if key not in book.results}
    errors: dict[str, KernelEvalError] = {}
    submissions = [case.submission for case in left.values() if case.submission is not None]
    keys = list(left)
    with session.bar(len(submissions)) as bar:
        for each in session.client.map(submissions, concurrency=given.concurrency, max_wait_s=given.max_wait):
            key = keys[each.index]
            case = left[key]
            if each.error is not None:
                errors[key] = each.error
            told: Any = each.result if each.error is None else session.told(each.error)
            book.write(key, case.problem.name, case.candidate.label, told)
            bar.advance(case.name)
    return errors


def _outcome(case: Case, book: Book, errors: dict[str, KernelEvalError]) -> Outcome:
    found, reason = None, case.refused
    if case.submission is not None:
        key = key_of(case.submission)
        found = book.results.get(key)
        reason = None if found is not None else str(errors.get(key, "not judged"))
    problem = case.problem
    return Outcome(problem.name, case.candidate.label, problem.level, found, reason, problem.timed)


def _exit(outcomes: Sequence[Outcome], errors: dict[str, KernelEvalError]) -> Exit:
    """The highest of them. What could not be handed over counts where nothing else was.

    What there is no device for was not judged, and is no failure.
    """
    results = [each.result for each in outcomes if each.result is not None]
    found = [Exit.PASSED if each.passed or each.verdict == "unsupported" else Exit.FAILED for each in results]
    return max([*found, *map(exit_of, errors.values())], default=Exit.USAGE)


def _line(case: Case, outcome: Outcome) -> dict[str, Any]:
    return {
        **{"problem": outcome.problem, "level": outcome.level, "candidate": outcome.candidate},
        **{"timed": outcome.timed, "judged": outcome.judged, "reason": outcome.reason},
        "result": outcome.result.raw if outcome.result else None,
    }
