"""`status`, `cancel`, `list`, `source` and `report`: jobs that were submitted."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.wording import DIM
from kernel_eval_client.errors import CallerError, UnknownJob
from kernel_eval_client.job import Job


def status(session: Session, arguments: argparse.Namespace) -> Exit:
    """Prints a job's current state, and its verdict if it has one."""
    job = session.client.job(arguments.job_id)
    if session.as_json:
        session.write(job.raw)
        return Exit.PASSED
    show.job(session.out, job)
    if job.result is not None:
        show.result(session.out, job.job_id, "", job.result, verbose=session.verbose)
    return Exit.PASSED


def cancel(session: Session, arguments: argparse.Namespace) -> Exit:
    """Cancels jobs and prints the state of each afterwards."""
    for job_id in arguments.job_ids:
        job = session.client.cancel(job_id, wait_s=arguments.max_wait or 0.0)
        if session.as_json:
            session.write(job.raw)
        else:
            note = "" if job.done else ", it will stop shortly"
            session.out.say(f"{job.job_id}  {job.state}{note}")
    return Exit.PASSED


def listing(session: Session, arguments: argparse.Namespace) -> Exit:
    """Prints the jobs, newest first."""
    listed = session.client.jobs(state=arguments.state, batch_id=arguments.batch, limit=arguments.limit)
    if session.as_json:
        session.write([job.raw for job in listed])
    else:
        show.jobs(session.out, listed)
    return Exit.PASSED


def source(session: Session, arguments: argparse.Namespace) -> Exit:
    """Prints the source of a job's kernel, or of its reference; as JSON both, with their contracts."""
    sources = session.client.source(arguments.job_id)
    sides = {"kernel": sources.kernel, "reference": sources.reference}
    if session.as_json:
        session.write({"job_id": arguments.job_id, "name": sources.label, **sides})
        return Exit.PASSED
    kernel = sides["reference" if arguments.reference else "kernel"]
    if not isinstance(kernel, Mapping):
        raise CallerError("the job has no reference: it was no comparison")
    text = str(kernel.get("source_code"))
    if arguments.output is None:
        session.out.block(text.splitlines(), indent="")
    else:
        arguments.output.write_text(text, encoding="utf-8")
        session.progress.say(f"Written to {arguments.output}.")
    return Exit.PASSED


def report(session: Session, arguments: argparse.Namespace) -> Exit:
    """Prints the report of a finished job: as text on a terminal, else as the service's page."""
    if session.as_json or (session.out.is_terminal and arguments.output is None and not arguments.html):
        return _print_report(session, session.client.wait_for_job(arguments.job_id))
    try:
        page = session.client.report(arguments.job_id)
    except UnknownJob:
        raise
    except CallerError as error:
        if error.status != 404:
            raise
        raise CallerError(
            f"this service makes no reports; `kernel-eval status {arguments.job_id} --json` has all of its data",
            status=404,
            problem=error.problem,
        ) from error
    if arguments.output is None:
        session.out.page(page)
    else:
        arguments.output.write_text(page, encoding="utf-8")
        session.progress.say(f"Written to {arguments.output}.")
    return Exit.PASSED


def _print_report(session: Session, job: Job) -> Exit:
    if session.as_json:
        session.write(job.raw)
        return Exit.PASSED
    if job.explanation:
        session.out.say(job.explanation, style="bold")
    show.job(session.out, job)
    if job.result is not None:
        show.result(session.out, job.job_id, "", job.result, verbose=session.verbose)
        if job.result.report:
            page = f"{session.client.address.url}{job.result.report}"
            session.out.say(f"  page      {page} (or --html)", style=DIM)
    return Exit.PASSED
