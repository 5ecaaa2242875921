"""`evaluate`, `compare`, `submit`, `wait` and `confirm`: one kernel and its verdict."""

from __future__ import annotations

import argparse
import dataclasses
import time

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.options import options
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.source import Choices, read_kernel, read_submission
from kernel_eval_client.errors import CallerError, KeyRefused, StillRunning
from kernel_eval_client.flow import verdict
from kernel_eval_client.job import Job
from kernel_eval_client.kernel import Kernel
from kernel_eval_client.result import Result
from kernel_eval_client.submission import Submission

POLL_S = 2.0


def evaluate(session: Session, arguments: argparse.Namespace) -> Exit:
    """Judges a kernel's source without a reference, or the request in a .json file."""
    return judge(
        session, with_options(read_submission(arguments.file, choices(arguments)), arguments), arguments.max_wait
    )


def compare(session: Session, arguments: argparse.Namespace) -> Exit:
    """Judges a candidate against a reference, or the request in a .json file."""
    if arguments.candidate is None and arguments.reference.suffix == ".json":
        request = read_submission(arguments.reference, choices(arguments))
        return judge(session, with_options(request, arguments), arguments.max_wait)
    return judge(session, comparison(arguments), arguments.max_wait)


def qualify(session: Session, arguments: argparse.Namespace) -> Exit:
    """Says whether a candidate is fit to be merged."""
    return judge(session, dataclasses.replace(comparison(arguments), qualify=True), arguments.max_wait)


def submit(session: Session, arguments: argparse.Namespace) -> Exit:
    """Submits a kernel and prints the job's id."""
    reference = read_kernel(arguments.reference, Choices()) if arguments.reference else None
    job = session.client.submit(with_options(read_submission(arguments.file, choices(arguments), reference), arguments))
    session.write(job.raw) if session.as_json else session.out.say(job.job_id)
    return Exit.PASSED


def wait(session: Session, arguments: argparse.Namespace) -> Exit:
    """Waits for a job's verdict and prints it."""
    result = _wait_for_result(session, session.client.job(arguments.job_id), arguments.max_wait)
    return show_verdict(
        session,
        result.name or result.job_id,
        "",
        result,
    )


def confirm(session: Session, arguments: argparse.Namespace) -> Exit:
    """Has a passed comparison judged again and prints the new verdict. The status is that of what was confirmed."""
    with session.progress.waiting("judging it again"):
        result = session.client.confirm(arguments.job_id, max_wait_s=arguments.max_wait)
    exit_status = show_verdict(session, result.name or result.job_id, "", result)
    stands = (result.confirmation or {}).get("speedup_stands")
    return exit_status if stands else Exit.FAILED


def again(session: Session, arguments: argparse.Namespace) -> Exit:
    """Has a job's request judged again and prints the new verdict."""
    with session.progress.waiting("judging it again"):
        result = session.client.again(arguments.job_id, max_wait_s=arguments.max_wait)
    return show_verdict(session, result.name or result.job_id, "", result)


def choices(arguments: argparse.Namespace) -> Choices:
    """The command line's options about the source."""
    return Choices(arguments.type, arguments.io, arguments.entry, tuple(arguments.compiler_option))


def comparison(arguments: argparse.Namespace) -> Submission:
    """A comparison of the candidate with the reference that the command line names."""
    reference = read_kernel(
        arguments.reference, Choices(arguments.reference_type, arguments.reference_io, arguments.reference_entry)
    )
    candidate = arguments.candidate if "candidate" in arguments else arguments.file
    if candidate is None:
        raise CallerError("a comparison takes two files: REFERENCE CANDIDATE; or one request, a .json file")
    if candidate.suffix == ".json":
        raise CallerError(f"{candidate} is a whole request; give it to `kernel-eval evaluate`")
    submission = Submission(read_kernel(candidate, choices(arguments)), reference, label=str(candidate))
    return with_options(submission, arguments)


def with_options(submission: Submission, arguments: argparse.Namespace) -> Submission:
    """The submission with the command line's options about how to judge it."""
    name = getattr(arguments, "name", None)
    named = {"label": name} if name is not None else {}
    return dataclasses.replace(submission, **options(arguments), **named)


def judge(session: Session, submission: Submission, max_wait_s: float | None) -> Exit:
    """Submits, waits and prints the verdict. Ctrl-C cancels the job."""
    job = session.client.submit(submission)
    try:
        result = _wait_for_result(session, job, max_wait_s)
    except KeyRefused:
        session.progress.say(f"Job {job.job_id} was submitted and goes on; this key may not read its verdict.")
        raise
    except KeyboardInterrupt:
        session.client.cancel(job.job_id)
        session.progress.say()
        session.progress.say(f"Cancelled job {job.job_id}.")
        raise
    return show_verdict(session, submission.label or job.job_id, _source(submission), result)


def _wait_for_result(session: Session, job: Job, max_wait_s: float | None) -> Result:
    """The job's result; shows its stage while it waits. Raises StillRunning after `max_wait_s` seconds."""
    began = time.monotonic()
    with session.progress.waiting(_stage(job)) as status:
        while True:
            time_left = POLL_S if max_wait_s is None else max_wait_s - (time.monotonic() - began)
            try:
                return verdict(session.client.wait_for_job(job.job_id, max_wait_s=max(0.0, min(POLL_S, time_left))))
            except StillRunning as error:
                if time_left <= POLL_S and max_wait_s is not None:
                    raise StillRunning(job.job_id, error.state, max_wait_s) from None
                status.update(f"{error.state} ({time.monotonic() - began:.0f} s)")


def _stage(job: Job) -> str:
    return job.state if job.queue_position is None else f"{job.state}, {job.queue_position} before it"


def show_verdict(session: Session, name: str, source: str, result: Result) -> Exit:
    """Prints the verdict and returns the exit status for it."""
    if session.as_json:
        session.write(result.raw)
    else:
        show.result(session.out, name, source, result, verbose=session.verbose, url=session.client.address.url)
    fit = result.qualification is None or result.qualification.get("fit") is True
    return Exit.PASSED if result.passed and fit else Exit.FAILED


def _source(submission: Submission) -> str:
    kernel = submission.kernel
    return kernel.source_code if isinstance(kernel, Kernel) else str(kernel.get("source_code", ""))
