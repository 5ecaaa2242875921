"""`batch`: every kernel below a folder, with a progress bar and a summary."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernel_eval_client.async_client import Finished
from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.judging import choices
from kernel_eval_client.cli.options import options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import Choices, read_kernel, submissions_in
from kernel_eval_client.errors import CallerError
from kernel_eval_client.submission import Submission


def batch(session: Session, given: argparse.Namespace) -> Exit:
    """Judges them all. As JSON: a line for each when it is done, and at the end one for each file that is skipped."""
    reference = read_kernel(given.reference, Choices()) if given.reference else None
    if not given.folder.is_dir():
        raise CallerError(f"{given.folder} is no folder")
    how = options(given)
    found, skipped = submissions_in(given.folder, choices(given), reference)
    if not found:
        reasons = "".join(f"; {name}: {why}" for name, why in skipped.items())
        raise CallerError(f"{given.folder} has no submission (.py, .cu or request .json){reasons}")
    submissions = [dataclasses.replace(each, **how) for each in found]
    finished = sorted(_judged(session, submissions, given), key=lambda each: each.index)
    if not session.as_json:
        show.summary(session.out, finished)
        show.skipped(session.out, skipped)
    else:
        for name, why in skipped.items():
            session.write({"file": name, "skipped": why})
    return max((_exit(each) for each in finished), default=Exit.PASSED)


def _judged(session: Session, submissions: list[Submission], given: argparse.Namespace) -> list[Finished]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    finished: list[Finished] = []
    with Progress(*columns, console=session.progress, transient=True) as progress:
        bar = progress.add_task("judging", total=len(submissions))
        for each in session.client.map(submissions, concurrency=given.concurrency, max_wait_s=given.max_wait):
            finished.append(each)
            progress.update(bar, advance=1, description=each.submission.label or "")
            if session.as_json:
                session.write(_line(session, each))
    return finished


def _line(session: Session, each: Finished) -> dict[str, Any]:
    if each.error is not None:
        return {"file": each.submission.label, "error": session.told(each.error)}
    return {"file": each.submission.label, "result": each.result.raw if each.result else None}


def _exit(each: Finished) -> Exit:
    if each.error is not None:
        return exit_of(each.error)
    return Exit.PASSED if each.result is not None and each.result.passed else Exit.FAILED
