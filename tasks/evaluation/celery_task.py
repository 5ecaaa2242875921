"""The Celery task `evaluate`: claims a job, runs the pipeline and writes the job's one end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from redis.exceptions import RedisError

from domain.fault import LOST_EXIT, InfrastructureFault, JobCancelled, Unproven
from domain.job import Stage
from domain.request import Request
from domain.result import Report
from domain.settings import settings
from tasks.app import app
from tasks.evaluation.attempt_monitor import AttemptMonitor, Superseded
from tasks.jobs.admission import Limits
from tasks.jobs.artifact_store import fitting
from tasks.jobs.job_queue import Claim, Message
from tasks.jobs.job_store import MAX_ATTEMPTS, JobStore
from tasks.jobs.kept_request import kept_request
from tasks.jobs.submit import TASK, end_pause, publish_again, publish_more
from tasks.node.device_info import own_device
from tasks.node.log_config import about
from tasks.node.redis_client import connect
from tasks.runtime.job_callbacks import JobCallbacks

Pipeline = Callable[[Request, JobCallbacks], Report]

NO_JOB = "no job"

log = logging.getLogger(__name__)


class DeviceLost(Exception):
    """This process can no longer use its device, so it can evaluate no further job."""


def evaluate(task: Any, *_: Any) -> str:
    """Run the first queued job. The message names no job: the claim decides which one runs (`tasks/jobs/job_queue.py`).

    Returns the verdict, or one word for another end of the attempt. Only Flower shows it.
    """
    # The arguments of a message from an earlier version are ignored.
    message = Message(task.request.id, task.request.delivery_info["routing_key"])
    show = partial(_show_in_flower, task)
    verdict = execute(patient_records(), prompt_records(), message, task.request.hostname, run_pipeline, show)
    if verdict != NO_JOB:
        _prepare_next_job()
    return verdict


def execute(
    records: JobStore,
    pulse: JobStore,
    message: Message,
    worker: str,
    pipeline: Pipeline,
    show: Callable[[Claim], None] | None = None,
) -> str:
    """Run one attempt. `records` outlasts a restart of Redis; `pulse` gives up quickly, because pulses repeat.

    `show` gets the claimed job.
    """
    claim = records.claim(worker, own_device().model, message)
    if claim is None:
        log.info("message %s: no job to begin", message.id)
        return NO_JOB
    if claim.queue_to_wake is not None:
        publish_more(claim.queue_to_wake)
    if show is not None:
        show(claim)
    with about(job_id=claim.job_id, attempt=claim.attempt, task_id=message.id):
        verdict = _attempt(records, pulse, claim, pipeline)
        if claim.attempt == MAX_ATTEMPTS:
            _end_next_pause(records)
    return verdict


def _end_next_pause(records: JobStore) -> None:
    """Let the next paused job begin; the reconciler would let it wait for up to two seconds."""
    try:
        end_pause(records)
    except RedisError as error:  # This attempt has ended, and is recorded: the task must not fail.
        log.warning("the reconciler will end the next job's pause: %s: %s", type(error).__name__, error)


def _show_in_flower(task: Any, claim: Claim) -> None:
    """Give Flower the job's id and name as the task's arguments. The message has none, because it names no job."""
    request = claim.request
    event_fields = [
        claim.job_id,
        request.operation,
        request.kernel.kernel_type,
        *([request.name] if request.name else []),
    ]
    try:
        task.send_event("task-started", retry=False, args=f"({', '.join(map(str, event_fields))})")
    except Exception as error:  # Only Flower lacks it, whatever fails here.
        log.warning("job %s: Flower does not get its name: %s: %s", claim.job_id, type(error).__name__, error)


def _attempt(records: JobStore, pulse: JobStore, claim: Claim, pipeline: Pipeline) -> str:
    job_id, attempt = claim.job_id, claim.attempt

    def enter(stage: Stage) -> None:
        monitor.progress(stage)
        log.info("job %s: %s", job_id, stage)

    log.info("job %s: attempt %d begins", job_id, attempt)
    try:
        with AttemptMonitor(pulse, job_id, attempt, allowance(claim.request)) as monitor:
            report = pipeline(claim.request, JobCallbacks(enter, monitor.cancelled, monitor.on_interim_result))
        monitor.report_stages(records)
        report = fitting(report, lambda: records.room(job_id, Limits(memory=settings().records_memory)))
        texts = {**report.texts, **(kept_request(claim.request) if claim.keeps_request else {})}
        records.complete(job_id, attempt, report.body(job_id), texts)
        # Only the verdict is logged: the message of a kernel's fault may quote its source.
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
        requeue_or_end(records, job_id, attempt, str(fault))
        os._exit(LOST_EXIT)
    except Exception as fault:
        # The report contains the kernels' faults, so this exception is a fault of the service.
        is_infrastructure_fault = isinstance(fault, InfrastructureFault)
        log.error("job %s: attempt %d failed", job_id, attempt, exc_info=None if is_infrastructure_fault else fault)
        reason = str(fault) if is_infrastructure_fault else f"{type(fault).__name__}: {fault}"
        requeue_or_end(records, job_id, attempt, reason, proven=not isinstance(fault, Unproven))
        return "failed"


def allowance(request: Request) -> float:
    """Maximum seconds of a job of this request, without its wait for the device.

    The build time counts twice: a job may also wait for another job that builds the same kernel. The time of
    a job counts again for each kernel that may have a process of earlier jobs.
    """
    used_candidate = settings().context_reuses > 0 and not request.kernel.has_host_code
    warm_reference = settings().warm_reference > 0 and request.reference is not None
    attempts = 1 + used_candidate + warm_reference
    judging_s = 2 * request.build_seconds + attempts * request.timeout
    return judging_s + request.inspection_seconds + request.baseline_seconds


def requeue_or_end(records: JobStore, job_id: str, attempt: int, reason: str, *, proven: bool = True) -> None:
    """Queue the job for another worker, or end it after its last attempt. `proven` as in `JobStore.requeue`."""
    queue = records.requeue(job_id, attempt, reason, proven=proven)
    if queue is not None:
        publish_again(queue, job_id, attempt + 1)


def run_pipeline(request: Request, callbacks: JobCallbacks) -> Report:
    """Run the pipeline in this process. Imported here, because it loads torch, which only pool children may load."""
    from tasks.evaluation.pipeline import run
    from tasks.runtime.worker_context import worker_context

    try:
        return run(request, worker_context(), callbacks)
    except (JobCancelled, Superseded):
        raise
    except Exception as fault:
        if not worker_context().device.usable:
            raise DeviceLost(f"the referee lost its device: {type(fault).__name__}: {fault}") from fault
        raise


def _prepare_next_job() -> None:
    """Prepare runners for the next job, after the end of this one is recorded."""
    from tasks.runtime.worker_context import worker_context

    try:
        worker_context().refill_pool()
    except Exception:
        log.exception("preparing the next job failed; the next job prepares what is missing itself")


@cache
def patient_records() -> JobStore:
    """Job records over a connection that outlasts a restart of Redis; one per process."""
    return JobStore(connect(patient=True), settings().job_ttl)


@cache
def prompt_records() -> JobStore:
    """Job records over a connection that gives up quickly; one per process."""
    return JobStore(connect(), settings().job_ttl)


app.task(name=TASK, bind=True)(evaluate)
