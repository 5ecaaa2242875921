"""`watch`: judges a source each time it is saved, or follows a job to its end."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import sleep as pause

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.judging import choices, comparison, judge, show_verdict, with_options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import read_submission
from kernel_eval_client.cli.wording import DIM
from kernel_eval_client.errors import CallerError, KernelEvalError

POLL_S = 0.2


def watch(session: Session, arguments: argparse.Namespace) -> Exit:
    """Judges a file now and after each save, until Ctrl-C or `--runs` times. Given a job's id, it follows that job."""
    if _stamp(arguments.file) is None:
        if arguments.file.suffix or len(arguments.file.parts) != 1:
            raise CallerError(f"{arguments.file} is not there")
        return _follow(session, str(arguments.file), arguments)
    judged_stamp, runs, status = None, 0, Exit.PASSED
    while arguments.runs is None or runs < arguments.runs:
        stamp = _stamp(arguments.file)
        if stamp == judged_stamp or stamp is None:
            pause(POLL_S)
            continue
        judged_stamp, runs = stamp, runs + 1
        try:
            submission = (
                comparison(arguments) if arguments.reference else read_submission(arguments.file, choices(arguments))
            )
            status = judge(session, with_options(submission, arguments), arguments.max_wait)
        except KernelEvalError as error:
            # A half-written file or an unreachable service must not end the watching.
            session.write({"error": session.error_object(error)}) if session.as_json else show.error(
                session.progress, error
            )
            status = exit_of(error)
        session.progress.say(f"Watching {arguments.file}; Ctrl-C ends.", style=DIM)
    return status


def _follow(session: Session, job_id: str, arguments: argparse.Namespace) -> Exit:
    """Prints a line for each event of the job, then its verdict."""
    if arguments.max_wait is not None:
        raise CallerError(f"there is no file {job_id}; for a job use `kernel-eval wait {job_id} --max-wait S`")
    began: float | None = None
    for event in session.client.events(job_id):
        if session.as_json:
            session.write({"event": event.name, "data": dict(event.data)})
        elif event.name == "stage":
            at = float(event.data["at"])
            began = at if began is None else began
            session.out.say(f"{at - began:8.2f} s  {event.data['stage']}")
        elif event.name == "verdict":
            prefix = "" if event.data.get("final") else "so far "
            session.out.say(f"{'':8}    {prefix}its answers are {'right' if event.data.get('correct') else 'wrong'}")
    return show_verdict(session, job_id, "", session.client.wait(job_id))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None  # An editor that replaces the file when it saves.
    return stat.st_mtime_ns, stat.st_size
