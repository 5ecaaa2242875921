"""`watch`: a source judged again whenever it is saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import sleep as pause

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.judging import choices, comparison, judged, with_options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import read_submission
from kernel_eval_client.errors import CallerError, KernelEvalError

LOOK_S = 0.2


def watch(session: Session, given: argparse.Namespace) -> Exit:
    """Judges a file now and each time it is saved, until Ctrl-C or `--runs` times."""
    if _stamp(given.file) is None:
        raise CallerError(f"{given.file} is not there")
    seen, runs, last = None, 0, Exit.PASSED
    while given.runs is None or runs < given.runs:
        stamp = _stamp(given.file)
        if stamp == seen or stamp is None:
            pause(LOOK_S)
            continue
        seen, runs = stamp, runs + 1
        try:
            submission = comparison(given) if given.reference else read_submission(given.file, choices(given))
            last = judged(session, with_options(submission, given), given.max_wait)
        except KernelEvalError as error:
            # A file that is half written, or a service that is away, is no reason to stop watching.
            session.write({"error": session.told(error)}) if session.as_json else show.error(session.progress, error)
            last = exit_of(error)
        session.progress.print(f"Watching {given.file}; Ctrl-C ends.", style=show.DIM)
    return last


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # An editor that replaces the file when it saves.
    return found.st_mtime_ns, found.st_size
