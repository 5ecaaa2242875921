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
from kernel_eval_client.errors import CallerError
from kernel_eval_client.submission import Submission


def batch(session: Session, given: argparse.Namespace) -> Exit:
    """Judges them all. As JSON: a line for each when it is done, and at the end one for each file that is skipped."""
    reference = read_kernel(given.reference, Choices()) if given.reference else None
    if not given.folder.is_dir():
        raise CallerError(f"{given.folder} is no folder")
    how = options(given)
    found = submissions_in(given.folder, choices(given), reference)
    if not found.submissions:
        reasons = "".join(f"; {name}: {why}" for name, why in (found.skipped | found.unreadable).items())
        raise CallerError(f"{given.folder} has no submission (.py, .cu or request .json){reasons}")
    found = dataclasses.replace(found, submissions=[dataclasses.replace(each, **how) for each in found.submissions])
    finished, stopped = [], False
    try:
        for each in _judged(session, found, given):
            finished.append(each)
            if session.as_json:
                session.write(_line(session, each))
    except KeyboardInterrupt:
        stopped = True
    _tell(session, sorted(finished, key=lambda each: each.index), found.skipped)
    if stopped:
        left = len(found.submissions) + len(found.unreadable) - len(finished)
        session.progress.say(f"Stopped: {left} are not judged, or were handed in and not waited for.")
        return Exit.INTERRUPTED
    return max((_exit(each) for each in finished), default=Exit.PASSED)


def _judged(session: Session, found: Folder, given: argparse.Namespace) -> Iterator[Finished]:
    """What could not be read, which stands last in the table, and then the others as they are done."""
    count = len(found.submissions)
    for name, error in found.unreadable.items():
        yield Finished(count, Submission({}, label=name), None, error)
    with session.bar(count) as bar:
        for each in session.client.map(found.submissions, concurrency=given.concurrency, max_wait_s=given.max_wait):
            bar.advance(each.submission.label or "")
            yield each


def _tell(session: Session, finished: list[Finished], skipped: dict[str, str]) -> None:
    if session.as_json:
        for name, why in skipped.items():
            session.write({"file": name, "skipped": why})
    else:
        show.summary(session.out, finished)
        show.skipped(session.out, skipped)


def _line(session: Session, each: Finished) -> dict[str, Any]:
    if each.error is not None:
        return {"file": each.submission.label, "error": session.told(each.error)}
    return {"file": each.submission.label, "result": each.result.raw if each.result else None}


def _exit(each: Finished) -> Exit:
    if each.error is not None:
        return exit_of(each.error)
    return Exit.PASSED if each.result is not None and each.result.passed else Exit.FAILED
