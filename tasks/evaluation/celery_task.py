"""The Celery task `evaluate`: claim a job, run the pipeline, write the one end that it has."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from domain.fault import LOST_EXIT, InfrastructureFault, JobCancelled, Unproven
from domain.job import Stage
from domain.request import Request
from domain.result import Report
from domain.settings import settings
from tasks.app import app
from tasks.evaluation.attempt_monitor import Superseded, Watch
from tasks.evaluation.shared_counters import board
from tasks.jobs.admission import Limits
from tasks.jobs.artifact_store import fitting
from tasks.jobs.flower_events import stage_events
from tasks.jobs.job_queue import Claim, Message
from tasks.jobs.job_store import JobRecords
from tasks.jobs.submit import TASK, publish_again, publish_more
from tasks.node import device_info
from tasks.node.log_config import about
from tasks.node.redis_client import connect

Pipeline = Callable[[Request, Callable[[Stage], None], Callable[[], bool], Callable[[bool], None]], Report]

NO_JOB = "no job"

log = logging.getLogger(__name__)


class DeviceLost(Exception):
    """This process can no longer use its device, and no other job can be judged in it."""


def evaluate(task: Any, *_: Any) -> str:
    """The task. Its message names no job: the one that is first in line is begun (`tasks/jobs/job_queue.py`).

    Returns the verdict, or in a word what became of the attempt: for Flower, nobody else is told.
    """
    # What is in a message of an earlier version is not looked at.
    message = Message(task.request.id, task.request.delivery_info["routing_key"])
    show = partial(stage_events().tell, task)
    verdict = execute(patient_records(), prompt_records(), message, task.request.hostname, run_pipeline, show)
    if verdict != NO_JOB:
        _get_ready()
    return verdict


def execute(
    records: JobRecords,
    pulse: JobRecords,
    message: Message,
    worker: str,
    pipeline: Pipeline,
    show: Callable[[Claim, Stage], None] = lambda claim, stage: None,
) -> str:
    """Run one attempt. `records` outlasts a restart of Redis; `pulse` gives up quickly, as it speaks again anyway.

    `show` is called with what was begun, and each stage that it enters.
    """
    claim = records.claim(worker, own_model(), message)
    if claim is None:
        log.info("message %s: no job to begin", message.id)
        return NO_JOB
    if claim.lacking is not None:
        publish_more(claim.lacking)
    with about(job_id=claim.job_id, attempt=claim.attempt, task_id=message.id):
        return _attempt(records, pulse, claim, pipeline, show)


def _attempt(
    records: JobRecords,
    pulse: JobRecords,
    claim: Claim,
    pipeline: Pipeline,
    show: Callable[[Claim, Stage], None],
) -> str:
    job_id, attempt = claim.job_id, claim.attempt

    def enter(stage: Stage) -> None:
        show(claim, stage)
        watch.progress(stage)
        log.info("job %s: %s", job_id, stage)

    log.info("job %s: attempt %d begins", job_id, attempt)
    try:
        with Watch(pulse, job_id, attempt, allowance(claim.request)) as watch:
            report = pipeline(claim.request, enter, watch.cancelled, watch.so_far)
        watch.report_rest(records)
        if report.texts:
            report = fitting(report, records.room(job_id, Limits(memory=settings().records_memory)))
        records.complete(job_id, attempt, report.body(job_id), report.texts)
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
        reason = str(fault) if known else f"{type(fault).__name__}: {fault}"
        try_again(records, job_id, attempt, reason, proven=not isinstance(fault, Unproven))
        return "failed"


def allowance(request: Request) -> float:
    """The seconds that a job of this request may take, waiting for the device aside.

    As long as it may build it may also wait for others that build the same.
    """
    return 2 * request.build_seconds + request.timeout + request.inspection_seconds


def try_again(records: JobRecords, job_id: str, attempt: int, reason: str, *, proven: bool = True) -> None:
    """Queue the job for another worker, or end it when it has had its attempts. `proven` as in `JobRecords.requeue`."""
    line = records.requeue(job_id, attempt, reason, proven=proven)
    if line is not None:
        publish_again(line, job_id, attempt + 1)


@cache
def own_model() -> str:
    """The model of this process's device, by which requests name it."""
    return device_info.detect().model


def run_pipeline(
    request: Request,
    progress: Callable[[Stage], None],
    cancelled: Callable[[], bool],
    so_far: Callable[[bool], None],
) -> Report:
    """The pipeline on this process's workbench. Imported here: it brings torch, which only pool children may load."""
    from tasks.evaluation.pipeline import run
    from tasks.runtime.worker_context import worker_context

    try:
        return run(request, worker_context(), progress, cancelled, so_far)
    except (JobCancelled, Superseded):
        raise
    except Exception as fault:
        if not worker_context().device.usable:
            raise DeviceLost(f"the referee lost its device: {type(fault).__name__}: {fault}") from fault
        raise


def _get_ready() -> None:
    """What the next job would have to wait for, once this one's end is told."""
    from tasks.runtime.worker_context import worker_context

    try:
        worker_context().refill_pool()
        board.write(worker_context().pooled_runners_ready)
    except Exception:
        log.exception("not ready ahead of the next job, which does itself what is missing")


@cache
def patient_records() -> JobRecords:
    """This process's records, through a connection that outlasts a restart of Redis."""
    return JobRecords(connect(patient=True), settings().job_ttl)


@cache
def prompt_records() -> JobRecords:
    """This process's records, through a connection that gives up quickly."""
    return JobRecords(connect(), settings().job_ttl)


app.task(name=TASK, bind=True)(evaluate)
