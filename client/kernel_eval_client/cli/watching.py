"""`watch`: a source judged again whenever it is saved, or a job followed to its end."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import sleep as pause

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.judging import choices, comparison, judged, shown, with_options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import read_submission
from kernel_eval_client.cli.wording import DIM
from kernel_eval_client.errors import CallerError, KernelEvalError

LOOK_S = 0.2


def watch(session: Session, given: argparse.Namespace) -> Exit:
    """Judges a file now and each time it is saved, until Ctrl-C or `--runs` times; follows a job, if it names one."""
    if _stamp(given.file) is None:
        if given.file.suffix or len(given.file.parts) != 1:
            raise CallerError(f"{given.file} is not there")
        return _follow(session, str(given.file), given)
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
        session.progress.say(f"Watching {given.file}; Ctrl-C ends.", style=DIM)
    return last


def _follow(session: Session, job_id: str, given: argparse.Namespace) -> Exit:
    """A line for each event, and the verdict."""
    if given.max_wait is not None:
        raise CallerError(f"there is no file {job_id}, and of a job it is `kernel-eval wait {job_id} --max-wait S`")
    began: float | None = None
    for event in session.client.events(job_id):
        if session.as_json:
            session.write({"event": event.name, "data": dict(event.data)})
        elif event.name == "stage":
            at = float(event.data["at"])
            began = at if began is None else began
            session.out.say(f"{at - began:8.2f} s  {event.data['stage']}")
        elif event.name == "verdict":
            so_far = "" if event.data.get("final") else "so far "
            session.out.say(f"{'':8}    {so_far}its answers are {'right' if event.data.get('correct') else 'wrong'}")
    return shown(session, job_id, "", session.client.wait(job_id))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # An editor that replaces the file when it saves.
    return found.st_mtime_ns, found.st_size
