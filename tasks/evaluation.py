"""The Celery task `evaluate`: claim a job, run the pipeline, write the one end that it has."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from domain.fault import InfrastructureFault, JobCancelled
from domain.job import Stage
from domain.request import Request
from domain.result import Report
from domain.settings import settings
from tasks.app import app
from tasks.child_board import board
from tasks.log_lines import about
from tasks.records import JobRecords
from tasks.store import connect
from tasks.submission import TASK, publish_again
from tasks.task_events import stage_events
from tasks.watch import Superseded, Watch

Pipeline = Callable[[Request, Callable[[Stage], None], Callable[[], bool]], Report]

LOST_EXIT = 71

log = logging.getLogger(__name__)


class DeviceLost(Exception):
    """This process can no longer use its device, and no other job can be judged in it."""


def evaluate(task: Any, job_id: str, attempt: int) -> str:
    """The task. `attempt` is the one that the message is for; a message that came twice or too late does nothing.

    Returns the verdict, or in a word what became of the attempt: for Flower, nobody else is told.
    """

    def pipeline(request: Request, progress: Callable[[Stage], None], cancelled: Callable[[], bool]) -> Report:
        def enter(stage: Stage) -> None:
            stage_events().tell(task, stage)
            progress(stage)

        return run_pipeline(request, enter, cancelled)

    return execute(patient_records(), prompt_records(), job_id, attempt, task.request.hostname, pipeline)


def execute(records: JobRecords, pulse: JobRecords, job_id: str, attempt: int, worker: str, pipeline: Pipeline) -> str:
    """Run one attempt. `records` outlasts a restart of Redis; `pulse` gives up quickly, as it speaks again anyway."""
    with about(job_id=job_id, attempt=attempt):
        return _attempt(records, pulse, job_id, attempt, worker, pipeline)


def _attempt(records: JobRecords, pulse: JobRecords, job_id: str, attempt: int, worker: str, pipeline: Pipeline) -> str:
    claim = records.claim(job_id, worker, attempt=attempt)
    if claim is None:
        log.info("job %s: attempt %d is not to be run", job_id, attempt)
        return "not run"
    log.info("job %s: attempt %d begins", job_id, attempt)
    try:
        with Watch(pulse, job_id, attempt, claim.request.build_seconds + claim.request.timeout) as watch:
            report = pipeline(claim.request, watch.progress, watch.cancelled)
        watch.report_rest(records)
        records.complete(job_id, attempt, report.body(job_id))
        # The verdict and no more: what a kernel's fault says may quote its source.
        reference = f", reference {report.reference.status}" if report.reference is not None else ""
        log.info("job %s: attempt %d: %s%s", job_id, attempt, report.outcome.status, reference)
        return report.outcome.status.value
    except JobCancelled:
        records.finish_cancelled(job_id, attempt)
        return "cancelled"
    except Superseded as superseded:
        log.warning("%s", superseded)
        return "given up"
    except DeviceLost as fault:
        log.critical("job %s: attempt %d: %s; ending this process", job_id, attempt, fault)
        try_again(records, job_id, attempt, str(fault))
        os._exit(LOST_EXIT)
    except Exception as fault:
        # Kernels' faults are in the report, so this one is ours, whatever it is.
        known = isinstance(fault, InfrastructureFault)
        log.error("job %s: attempt %d failed", job_id, attempt, exc_info=None if known else fault)
        try_again(records, job_id, attempt, str(fault) if known else f"{type(fault).__name__}: {fault}")
        return "failed"


def try_again(records: JobRecords, job_id: str, attempt: int, reason: str) -> None:
    """Queue the job for another worker, or end it when it has had its attempts."""
    if records.requeue(job_id, attempt, reason):
        publish_again(records, job_id, attempt + 1)


def run_pipeline(request: Request, progress: Callable[[Stage], None], cancelled: Callable[[], bool]) -> Report:
    """The pipeline on this process's workbench. Imported here: it brings torch, which only pool children may load."""
    from tasks.pipeline import run
    from tasks.workbench import workbench

    try:
        report = run(request, workbench(), progress, cancelled)
        board.write(workbench().standbys_ready)
        return report
    except (JobCancelled, Superseded):
        raise
    except Exception as fault:
        if not workbench().device.usable:
            raise DeviceLost(f"the referee lost its device: {type(fault).__name__}: {fault}") from fault
        raise


@cache
def patient_records() -> JobRecords:
    """This process's records, through a connection that outlasts a restart of Redis."""
    return JobRecords(connect(patient=True), settings().job_ttl)


@cache
def prompt_records() -> JobRecords:
    """This process's records, through a connection that gives up quickly."""
    return JobRecords(connect(), settings().job_ttl)


app.task(name=TASK, bind=True)(evaluate)
