"""Handing in jobs: the record first, then the message, so that every job that is accepted is known."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from domain.access import Key
from domain.request import Request
from tasks.admission import UNLIMITED, Admission, Limits, Recorded, Refusal
from tasks.app import app
from tasks.log_lines import about
from tasks.records import JobRecords
from tasks.task_events import label, name_of

TASK = "evaluate"
FIRST_ATTEMPT = 1
PUBLISHED_AT = "published_at"
"""A message header: epoch seconds of the records' clock."""

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
) -> str:
    """Record a job and publish it; the job's id. Raises redis' errors when it could not be recorded, NotRecorded.

    A job of that id that is recorded already, for the same request, is left as it is.
    """
    job_id = job_id or str(uuid4())
    admitted = records.create(job_id, request, batch_id=batch_id, key=key, limits=limits)
    if isinstance(admitted, Refusal):
        raise NotRecorded(admitted)
    if admitted.new:
        with about(job_id=job_id):
            _log_accepted(job_id, request)
            publish(job_id, FIRST_ATTEMPT, admitted.at, request)
    return job_id


def submit_many(
    records: JobRecords,
    jobs: Sequence[tuple[str, Request]],
    *,
    batch_id: str | None = None,
    key: Key | None = None,
    limits: Limits = UNLIMITED,
) -> list[Admission]:
    """Record many jobs under these ids and publish them, in their order; what became of each."""
    admitted = records.create_many(jobs, batch_id=batch_id, key=key, limits=limits)
    reachable = True
    for (job_id, request), one in zip(jobs, admitted, strict=True):
        if isinstance(one, Recorded) and one.new:
            with about(job_id=job_id):
                _log_accepted(job_id, request)
                # Once the broker is away, it is not waited for once per job.
                reachable = reachable and publish(job_id, FIRST_ATTEMPT, one.at, request)
    return admitted


def _log_accepted(job_id: str, request: Request) -> None:
    log.info("job %s: accepted, %s %s", job_id, request.operation, request.kernel.kernel_type)


def publish_again(records: JobRecords, job_id: str, attempt: int) -> bool:
    """Send the message for a later attempt, to another worker than those that have failed the job if there is one."""
    shown = [part for view in records.views([job_id]) for part in (view.kernel_type, view.operation)]
    return publish(job_id, attempt, records.now(), worker=records.elsewhere(job_id), shown=shown)


def publish(
    job_id: str,
    attempt: int,
    now: float,
    request: Request | None = None,
    *,
    worker: str | None = None,
    shown: Sequence[str | None] = (),
) -> bool:
    """Send the message for that attempt of a recorded job; False when the broker is away, and the reconciler will.

    `now` is by the records' clock: the message carries it, so that the reconciler knows which messages are overdue.
    With a `worker`, into its own queue.
    """
    if request is not None:
        shown = (name_of(request.kernel), request.kernel.kernel_type, request.operation)
    try:
        app.send_task(
            TASK,
            args=[job_id, attempt],
            task_id=message_id(job_id, attempt),
            queue=app.conf.task_default_queue if worker is None else own_queue(worker),
            headers={PUBLISHED_AT: now},
            # What Flower shows. The source is in no message and no event.
            argsrepr=label(job_id, attempt, *shown),
            kwargsrepr="{}",
        )
    except (OperationalError, RedisError, OSError) as error:
        log.warning("job %s is accepted but not published yet, the reconciler will: %s", job_id, error)
        return False
    return True


def own_queue(worker: str) -> str:
    """The queue that this worker alone takes from, besides the common one (`tasks/record_scripts.py` knows it too)."""
    return f"{app.conf.task_default_queue}.{worker}"


def message_id(job_id: str, attempt: int) -> str:
    """The Celery task id: one for each attempt, so that Flower keeps them apart."""
    return f"{job_id}.{attempt}"
