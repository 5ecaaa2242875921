"""`suite`: judges every candidate of every problem and prints the score."""

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
from kernel_eval_client.similar_name import did_you_mean
from kernel_eval_client.suites import Case, Outcome, cases, read
from kernel_eval_client.suites.result_log import ResultLog, request_key


def suite(session: Session, arguments: argparse.Namespace) -> Exit:
    """Judges the candidates without a line in the results file. With `--json`: a line for each, and one of scores."""
    problems = read(arguments.suite, arguments.candidates, layout=arguments.layout, small=arguments.small)
    all_cases = list(cases(problems, options(arguments)))
    selected, unmatched = (
        [case for case in all_cases if _is_selected(case, arguments)],
        _unmatched(all_cases, arguments),
    )
    if not selected:
        reason = "; ".join(unmatched) or "--only, --level and --candidate exclude all of them"
        raise CallerError(f"no problem is selected: {reason}")
    for message in unmatched:
        session.progress.say(message, style="yellow")
    if arguments.list:
        return _print_cases(session, selected)
    path = arguments.results or Path(f"{Path(arguments.suite).resolve().name}.results.jsonl")
    with ResultLog(path, again=arguments.again) as log:
        cached = sum(case.submission is not None and request_key(case.submission) in log.results for case in selected)
        if cached:
            session.progress.say(f"{cached} of {len(selected)} are in {path} and are not judged again (--again does)")
        try:
            errors = _judge(session, selected, log, arguments)
        except KeyboardInterrupt:
            session.progress.say(f"Stopped. The results so far are in {path}: the same command continues from them.")
            raise
        outcomes = [_outcome_of(case, log, errors) for case in selected]
    groups = show_suite.groups(outcomes)
    if session.as_json:
        for case, outcome in zip(selected, outcomes, strict=True):
            session.write(_line(case, outcome))
        session.write(
            {
                "suite": str(arguments.suite),
                "scores": {name: group_score.to_dict() for name, group_score in groups.items()},
                "unsupported": show_suite.unsupported(outcomes),
            }
        )
    else:
        show_suite.table(session.out, outcomes)
        show_suite.scores(session.out, groups, outcomes)
        session.progress.say(f"Results are in {path}.", style="dim")
    return _exit(outcomes, errors)


def _is_selected(case: Case, arguments: argparse.Namespace) -> bool:
    by_name = not arguments.only or any(fnmatch.fnmatch(case.problem.name, each) for each in arguments.only)
    by_level = not arguments.level or case.problem.level in arguments.level
    return by_name and by_level and (not arguments.candidate or case.candidate.label in arguments.candidate)


def _unmatched(all_cases: Sequence[Case], arguments: argparse.Namespace) -> list[str]:
    """A message for each value of --only, --level and --candidate that matches nothing in the suite."""
    names, labels = ({case.problem.name for case in all_cases}, {case.candidate.label for case in all_cases})
    levels = {case.problem.level for case in all_cases}
    only, candidates = arguments.only or (), arguments.candidate or ()
    other_names = [each for each in only if not fnmatch.filter(names, each)]
    meant = {each: "" if set(each) & set("*?[") else did_you_mean(each, names) for each in other_names}
    other_labels = [each for each in candidates if each not in labels]
    return [
        *(f"--only {each} is no problem's name{meant[each]}" for each in other_names),
        *(f"--level {each} is no problem's" for each in arguments.level or () if each not in levels),
        *(f"--candidate {each} is no candidate's label{did_you_mean(each, labels)}" for each in other_labels),
    ]


def _print_cases(session: Session, selected: Sequence[Case]) -> Exit:
    if session.as_json:
        for case in selected:
            session.write(
                {"problem": case.problem.name, "level": case.problem.level, "about": case.problem.about}
                | {"candidate": case.candidate.label, "refused": case.refused}
            )
    else:
        show_suite.listing(session.out, selected)
    return Exit.PASSED


def _judge(
    session: Session, selected: Sequence[Case], log: ResultLog, arguments: argparse.Namespace
) -> dict[str, KernelEvalError]:
    """Judges the cases without a result and logs each outcome at once. Returns the errors by request key."""
    pending = {request_key(case.submission): case for case in selected if case.submission is not None}
    pending = {key: case for key, case in pending.items() if key not in log.results}
    errors: dict[str, KernelEvalError] = {}
    submissions = [case.submission for case in pending.values() if case.submission is not None]
    keys = list(pending)
    with session.bar(len(submissions)) as bar:
        for finished in session.client.map(
            submissions, concurrency=arguments.concurrency, max_wait_s=arguments.max_wait
        ):
            key = keys[finished.index]
            case = pending[key]
            if finished.error is not None:
                errors[key] = finished.error
            outcome: Any = finished.result if finished.error is None else session.error_object(finished.error)
            log.write(key, case.problem.name, case.candidate.label, outcome)
            bar.step(case.name)
    return errors


def _outcome_of(case: Case, log: ResultLog, errors: dict[str, KernelEvalError]) -> Outcome:
    result, reason = None, case.refused
    if case.submission is not None:
        key = request_key(case.submission)
        result = log.results.get(key)
        reason = None if result is not None else str(errors.get(key, "not judged"))
    problem = case.problem
    return Outcome(problem.name, case.candidate.label, problem.level, result, reason, problem.timed)


def _exit(outcomes: Sequence[Outcome], errors: dict[str, KernelEvalError]) -> Exit:
    """The highest exit status of all cases; USAGE if no case could be submitted.

    UNSUPPORTED hides no other: where a worker lacks what a kernel needs, neither the kernel nor the service has failed.
    """
    results = [each.result for each in outcomes if each.result is not None and not each.worker_lacks_something]
    statuses = [Exit.PASSED if result.passed else Exit.FAILED for result in results]
    lacks = any(each.worker_lacks_something for each in outcomes)
    highest = max([*statuses, *map(exit_of, errors.values())], default=Exit.PASSED if lacks else Exit.USAGE)
    return Exit.UNSUPPORTED if lacks and highest is Exit.PASSED else highest


def _line(case: Case, outcome: Outcome) -> dict[str, Any]:
    return {
        **{"problem": outcome.problem, "level": outcome.level, "candidate": outcome.candidate},
        **{"timed": outcome.timed, "judged": outcome.judged, "reason": outcome.reason},
        "result": outcome.result.raw if outcome.result else None,
    }
