"""Handing in jobs: the record first, then the message, so that every job that is accepted is known."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from domain.access import Key
from domain.request import Request
from tasks.app import app
from tasks.jobs.admission import UNLIMITED, Admission, Limits, Recorded, Refusal
from tasks.jobs.flower_events import label
from tasks.jobs.job_queue import line_of_gpu
from tasks.jobs.job_store import JobRecords, JobView
from tasks.jobs.webhook_outbox import Webhook
from tasks.node.log_config import about

TASK = "evaluate"

log = logging.getLogger(__name__)


class NotRecorded(Exception):
    """Nothing was recorded; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


def submit(
    records: JobRecords,
    request: Request,
    *,
    job_id: str | None = None,
    batch_id: str | None = None,
    key: Key | None = None,
    limits: Limits = UNLIMITED,
    webhook: Webhook | None = None,
) -> JobView:
    """Record a job and publish it; the job as it was recorded.

    A job of that id that is recorded already, for the same request, is left as it is. Raises redis' errors when it
    could not be recorded, NotRecorded.
    """
    job_id = job_id or str(uuid4())
    admitted = records.create(job_id, request, batch_id=batch_id, key=key, limits=limits, webhook=webhook)
    if isinstance(admitted, Refusal):
        raise NotRecorded(admitted)
    if admitted.new:
        with about(job_id=job_id):
            _log_accepted(job_id, request, admitted)
            if not admitted.answered:
                publish(job_id, request)
    return admitted.view


def submit_many(
    records: JobRecords,
    jobs: Sequence[tuple[str, Request]],
    *,
    batch_id: str | None = None,
    key: Key | None = None,
    limits: Limits = UNLIMITED,
    indexes: Sequence[int] = (),
    webhooks: Mapping[str, Webhook] | None = None,
    bodies: str = "",
) -> list[Admission]:
    """Record many jobs under these ids and publish them, in their order; what became of each."""
    admitted = records.create_many(
        jobs, batch_id=batch_id, key=key, limits=limits, indexes=indexes, webhooks=webhooks, bodies=bodies
    )
    reachable = True
    for (job_id, request), one in zip(jobs, admitted, strict=True):
        if isinstance(one, Recorded) and one.new:
            with about(job_id=job_id):
                _log_accepted(job_id, request, one)
                if not one.answered:
                    # Once the broker is away, it is not waited for once per job.
                    reachable = reachable and publish(job_id, request)
    return admitted


def _log_accepted(job_id: str, request: Request, recorded: Recorded) -> None:
    answered = ", answered as an earlier one was" if recorded.answered else ""
    log.info("job %s: accepted, %s %s%s", job_id, request.operation, request.kernel.kernel_type, answered)


def publish(job_id: str, request: Request) -> bool:
    """Send the message for a job that was recorded; False when the broker is away, and the reconciler will."""
    return _send(line_of_gpu(request.gpu), message_id(job_id, 1), label(job_id, 1, request))


def publish_again(line: str, job_id: str, attempt: int) -> bool:
    """Send the message for a later attempt, to the queue of the line that the job stands in."""
    return _send(line, message_id(job_id, attempt), label(job_id, attempt))


def publish_more(line: str) -> bool:
    """Send one more message to the queue of a line that has more jobs than messages."""
    return _send(line, f"more.{uuid4()}", f"(whoever is first in {line})")


def message_id(job_id: str, attempt: int) -> str:
    """The Celery task id: one for each attempt, so that Flower keeps them apart."""
    return f"{job_id}.{attempt}"


def _send(queue: str, task_id: str, shown: str) -> bool:
    """No job is in a message: which one it starts is decided when it arrives (`tasks/jobs/job_queue.py`)."""
    try:
        # `argsrepr` is what Flower shows. The source is in no message and no event.
        app.send_task(TASK, args=[], task_id=task_id, queue=queue, argsrepr=shown, kwargsrepr="{}")
    except (OperationalError, RedisError, OSError) as error:
        log.warning("message %s is not published yet, the reconciler will send another: %s", task_id, error)
        return False
    except Exception:
        # The job is recorded, and so accepted, whatever fails here. kombu itself does where Redis goes away between its
        # declaring a queue and publishing to it: it goes on with the channel that it has closed.
        log.exception("message %s is not published, the reconciler will send another", task_id)
        return False
    return True
