"""`evaluate`, `compare`, `submit` and `wait`: one kernel and its verdict."""

from __future__ import annotations

import argparse
import dataclasses
import time

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.options import options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import Choices, read_kernel, read_submission
from kernel_eval_client.errors import CallerError, StillRunning
from kernel_eval_client.flow import verdict
from kernel_eval_client.job import Job
from kernel_eval_client.kernel import Kernel
from kernel_eval_client.result import Result
from kernel_eval_client.submission import Submission

LOOK_S = 2.0


def evaluate(session: Session, given: argparse.Namespace) -> Exit:
    """Judges a file, alone or as the request in it says."""
    return judged(session, with_options(read_submission(given.file, choices(given)), given), given.max_wait)


def compare(session: Session, given: argparse.Namespace) -> Exit:
    """Judges a candidate against a reference."""
    return judged(session, comparison(given), given.max_wait)


def submit(session: Session, given: argparse.Namespace) -> Exit:
    """Hands in and tells the job's id."""
    reference = read_kernel(given.reference, Choices()) if given.reference else None
    job = session.client.submit(with_options(read_submission(given.file, choices(given), reference), given))
    session.write(job.raw) if session.as_json else session.out.say(job.job_id)
    return Exit.PASSED


def wait(session: Session, given: argparse.Namespace) -> Exit:
    """Waits for a job's verdict."""
    return shown(session, given.job_id, "", _followed(session, session.client.job(given.job_id), given.max_wait))


def choices(given: argparse.Namespace) -> Choices:
    """What the command line says about the source."""
    return Choices(given.type, given.io, given.entry, tuple(given.compiler_option))


def comparison(given: argparse.Namespace) -> Submission:
    """A candidate and its reference, as the command line names them."""
    reference = read_kernel(given.reference, Choices(given.reference_type, given.reference_io, given.reference_entry))
    candidate = given.candidate if "candidate" in given else given.file
    if candidate.suffix == ".json":
        raise CallerError(f"{candidate} is a whole request; give it to `kernel-eval evaluate`")
    submission = Submission(read_kernel(candidate, choices(given)), reference, label=str(candidate))
    return with_options(submission, given)


def with_options(submission: Submission, given: argparse.Namespace) -> Submission:
    """With what the command line says about how to judge."""
    return dataclasses.replace(submission, **options(given))


def judged(session: Session, submission: Submission, max_wait_s: float | None) -> Exit:
    """Hands in, follows, shows; Ctrl-C cancels the job."""
    job = session.client.submit(submission)
    try:
        found = _followed(session, job, max_wait_s)
    except KeyboardInterrupt:
        session.client.cancel(job.job_id)
        session.progress.say()
        session.progress.say(f"Cancelled job {job.job_id}.")
        raise
    return shown(session, submission.label or job.job_id, _source(submission), found)


def _followed(session: Session, job: Job, max_wait_s: float | None) -> Result:
    """The result, the job's stage shown meanwhile; raises StillRunning when the time is over."""
    began = time.monotonic()
    with session.progress.waiting(_stage(job)) as status:
        while True:
            left = LOOK_S if max_wait_s is None else max_wait_s - (time.monotonic() - began)
            try:
                return verdict(session.client.settled(job.job_id, max_wait_s=max(0.0, min(LOOK_S, left))))
            except StillRunning as error:
                if left <= LOOK_S and max_wait_s is not None:
                    raise StillRunning(job.job_id, error.state, max_wait_s) from None
                status.update(f"{error.state} ({time.monotonic() - began:.0f} s)")


def _stage(job: Job) -> str:
    return job.state if job.queue_position is None else f"{job.state}, {job.queue_position} before it"


def shown(session: Session, name: str, source: str, found: Result) -> Exit:
    """The verdict, and the exit status that it is."""
    if session.as_json:
        session.write(found.raw)
    else:
        show.result(session.out, name, source, found, verbose=session.verbose)
    return Exit.PASSED if found.passed else Exit.FAILED


def _source(submission: Submission) -> str:
    kernel = submission.kernel
    return kernel.source_code if isinstance(kernel, Kernel) else str(kernel.get("source_code", ""))
