"""`batch`: every kernel below a folder, with a progress bar and a summary."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from kernel_eval_client.async_client import Finished
from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.judging import choices
from kernel_eval_client.cli.options import options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import Choices, Folder, read_kernel, submissions_in
from kernel_eval_client.cli.wording import DIM
from kernel_eval_client.errors import CallerError
from kernel_eval_client.submission import Submission


def batch(session: Session, arguments: argparse.Namespace) -> Exit:
    """Judges each kernel below the folder. With `--json`: a line for each verdict, then one for each skipped file."""
    reference = read_kernel(arguments.reference, Choices()) if arguments.reference else None
    if not arguments.folder.is_dir():
        raise CallerError(f"{arguments.folder} is no folder")
    judging_options = options(arguments)
    folder = submissions_in(arguments.folder, choices(arguments), reference)
    if not folder.submissions:
        reasons = "".join(f"; {name}: {reason}" for name, reason in (folder.skipped | folder.unreadable).items())
        raise CallerError(f"{arguments.folder} has no submission (.py, .cu or request .json){reasons}")
    folder = dataclasses.replace(
        folder, submissions=[dataclasses.replace(entry, **judging_options) for entry in folder.submissions]
    )
    finished, stopped = [], False
    try:
        for entry in _judge(session, folder, arguments):
            finished.append(entry)
            if session.as_json:
                session.write(_line(session, entry))
    except KeyboardInterrupt:
        stopped = True
    _report(session, sorted(finished, key=lambda entry: entry.index), folder.skipped)
    if stopped:
        remaining = len(folder.submissions) + len(folder.unreadable) - len(finished)
        session.progress.say(f"Stopped: {remaining} without a verdict; those already sent will still run.")
        return Exit.INTERRUPTED
    return max((_exit(entry) for entry in finished), default=Exit.PASSED)


def _judge(session: Session, folder: Folder, arguments: argparse.Namespace) -> Iterator[Finished]:
    """Yields the unreadable files first, with indices that sort them last, then each submission when it is judged."""
    count = len(folder.submissions)
    for name, error in folder.unreadable.items():
        yield Finished(count, Submission({}, label=name), None, error)
    with session.bar(count) as bar:
        for entry in session.client.map(
            folder.submissions, concurrency=arguments.concurrency, max_wait_s=arguments.max_wait
        ):
            bar.step(entry.submission.label or "")
            yield entry


def _report(session: Session, finished: list[Finished], skipped: dict[str, str]) -> None:
    if session.as_json:
        for name, reason in skipped.items():
            session.write({"file": name, "skipped": reason})
    else:
        show.summary(session.out, finished)
        show.skipped(session.out, skipped)
        session.out.say(f"Reports of all jobs: {session.client.address.url}/jobs", style=DIM)


def _line(session: Session, entry: Finished) -> dict[str, Any]:
    if entry.error is not None:
        return {"file": entry.submission.label, "error": session.error_object(entry.error)}
    return {"file": entry.submission.label, "result": entry.result.raw if entry.result else None}


def _exit(entry: Finished) -> Exit:
    if entry.error is not None:
        return exit_of(entry.error)
    return Exit.PASSED if entry.result is not None and entry.result.passed else Exit.FAILED
