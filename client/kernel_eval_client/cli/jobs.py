"""`status`, `cancel`, `list` and `report`: jobs that were handed in."""

from __future__ import annotations

import argparse

from kernel_eval_client.cli import show
from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.wording import DIM
from kernel_eval_client.errors import CallerError, UnknownJob
from kernel_eval_client.job import Job


def status(session: Session, given: argparse.Namespace) -> Exit:
    """A job as it is now, with its verdict once there is one."""
    job = session.client.job(given.job_id)
    if session.as_json:
        session.write(job.raw)
        return Exit.PASSED
    show.job(session.out, job)
    if job.result is not None:
        show.result(session.out, job.job_id, "", job.result, verbose=session.verbose)
    return Exit.PASSED


def cancel(session: Session, given: argparse.Namespace) -> Exit:
    """Cancels jobs; each is told as it is then."""
    for job_id in given.job_ids:
        job = session.client.cancel(job_id, wait_s=given.max_wait or 0.0)
        if session.as_json:
            session.write(job.raw)
        else:
            stopping = "" if job.done else ", it will stop shortly"
            session.out.say(f"{job.job_id}  {job.state}{stopping}")
    return Exit.PASSED


def listing(session: Session, given: argparse.Namespace) -> Exit:
    """Jobs, newest first."""
    found = session.client.jobs(state=given.state, batch_id=given.batch, limit=given.limit)
    if session.as_json:
        session.write([job.raw for job in found])
    else:
        show.jobs(session.out, found)
    return Exit.PASSED


def report(session: Session, given: argparse.Namespace) -> Exit:
    """Of a job that has ended: as text on a terminal, else the service's page."""
    if session.as_json or (session.out.is_terminal and given.output is None and not given.html):
        return _in_text(session, session.client.settled(given.job_id))
    try:
        page = session.client.report(given.job_id)
    except UnknownJob:
        raise
    except CallerError as error:
        if error.status != 404:
            raise
        raise CallerError(
            f"this service makes no reports; `kernel-eval status {given.job_id} --json` has everything it knows",
            status=404,
            problem=error.problem,
        ) from error
    if given.output is None:
        session.out.page(page)
    else:
        given.output.write_text(page, encoding="utf-8")
        session.progress.say(f"Written to {given.output}.")
    return Exit.PASSED


def _in_text(session: Session, job: Job) -> Exit:
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
