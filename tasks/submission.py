"""Handing in jobs: the record first, then the message, so that every job that is accepted is known."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from domain.access import Key
from domain.request import Request
from tasks.app import app
from tasks.records import JobRecords

TASK = "evaluate"
FIRST_ATTEMPT = 1
PUBLISHED_AT = "published_at"
"""A message header: epoch seconds of the records' clock."""

log = logging.getLogger(__name__)


class QuotaReached(Exception):
    """The key has as many jobs that are not terminal as it may; nothing was recorded."""


def submit(records: JobRecords, request: Request, *, batch_id: str | None = None, key: Key | None = None) -> str:
    """Record a job and publish it; the job's id. Raises redis' errors when it could not be recorded, QuotaReached."""
    job_id = str(uuid4())
    if not records.create(job_id, request, batch_id=batch_id, key=key):
        raise QuotaReached
    publish(job_id, FIRST_ATTEMPT, records.now(), request)
    return job_id


def submit_many(
    records: JobRecords, requests: Sequence[Request], *, batch_id: str | None = None, key: Key | None = None
) -> list[str | None]:
    """Record many jobs and publish them, in their order; the id of each, None where the key's quota was reached."""
    jobs = [(str(uuid4()), request) for request in requests]
    recorded = records.create_many(jobs, batch_id=batch_id, key=key)
    accepted = [job for job, done in zip(jobs, recorded, strict=True) if done]
    now = records.now()
    for job_id, request in accepted:
        if not publish(job_id, FIRST_ATTEMPT, now, request):
            # The broker is away: do not wait for it once per job.
            break
    return [job_id if done else None for (job_id, _), done in zip(jobs, recorded, strict=True)]


def publish(job_id: str, attempt: int, now: float, request: Request | None = None) -> bool:
    """Send the message for that attempt of a recorded job; False when the broker is away, and the reconciler will.

    `now` is by the records' clock: the message carries it, so that the reconciler knows which messages are overdue.
    """
    kind = f", {request.operation} {request.kernel.kernel_type}" if request is not None else ""
    try:
        app.send_task(
            TASK,
            args=[job_id, attempt],
            task_id=message_id(job_id, attempt),
            headers={PUBLISHED_AT: now},
            # What Flower shows. The source is in no message and no event.
            argsrepr=f"({job_id}, attempt {attempt}{kind})",
            kwargsrepr="{}",
        )
    except (OperationalError, RedisError, OSError) as error:
        log.warning("job %s is accepted but not published yet, the reconciler will: %s", job_id, error)
        return False
    return True


def message_id(job_id: str, attempt: int) -> str:
    """The Celery task id: one for each attempt, so that Flower keeps them apart."""
    return f"{job_id}.{attempt}"
