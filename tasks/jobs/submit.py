"""Submission of jobs: the record is written first, then the message, so that every accepted job is known."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from domain.access import Key
from domain.request import Request
from domain.settings import settings
from tasks.app import app
from tasks.jobs.admission import UNLIMITED, Accepted, Admission, Limits, NewJob, Refusal
from tasks.jobs.job_store import JobStore, JobView
from tasks.jobs.webhook_outbox import Webhook
from tasks.node.log_config import about

TASK = "evaluate"
BUILD_TASK = BUILD_QUEUE = "build"
MAX_BUILD_MESSAGES = 10_000
"""Maximum number of messages in the queue of builds: without a build-only worker nobody takes them."""

BUILD_MESSAGE_TTL_S = 3600
"""Seconds after which a build-only worker discards a message; by then the job has mostly started."""

log = logging.getLogger(__name__)


class NotAccepted(Exception):
    """No job was recorded; `refusal` is the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


def submit(
    records: JobStore,
    request: Request,
    *,
    job_id: str | None = None,
    batch_id: str | None = None,
    key: Key | None = None,
    limits: Limits = UNLIMITED,
    webhook: Webhook | None = None,
    worker: str | None = None,
) -> JobView:
    """Record a job and publish its message, to `worker`'s queue if one is named; returns the recorded job.

    A job of the same id and request that exists already stays as it is. Raises NotAccepted, or an error of redis if
    Redis could not be reached.
    """
    new = NewJob(job_id or str(uuid4()), request, webhook=webhook, worker=worker)
    admitted = records.create(
        new.job_id, request, batch_id=batch_id, key=key, limits=limits, webhook=webhook, worker=worker
    )
    if isinstance(admitted, Refusal):
        raise NotAccepted(admitted)
    if admitted.new:
        with about(job_id=new.job_id):
            _log_accepted(new.job_id, request, admitted)
            if not admitted.answered and publish(new):
                publish_builds(records, [new.job_id])
    return admitted.view


def submit_many(
    records: JobStore,
    jobs: Sequence[NewJob],
    *,
    batch_id: str | None = None,
    key: Key | None = None,
    limits: Limits = UNLIMITED,
    bodies: str = "",
) -> list[Admission]:
    """Record many jobs and publish their messages, in order; returns the admission of each."""
    admitted = records.create_many(jobs, batch_id=batch_id, key=key, limits=limits, bodies=bodies)
    reachable, queued = True, []
    for new, admission in zip(jobs, admitted, strict=True):
        if isinstance(admission, Accepted) and admission.new:
            with about(job_id=new.job_id):
                _log_accepted(new.job_id, new.request, admission)
                if not admission.answered:
                    # Once the broker is unreachable, later jobs do not wait for it.
                    reachable = reachable and publish(new)
                    queued.append(new.job_id)
    if reachable and queued:
        publish_builds(records, queued)
    return admitted


def _log_accepted(job_id: str, request: Request, admission: Accepted) -> None:
    answered = ", answered as an earlier one was" if admission.answered else ""
    log.info("job %s: accepted, %s %s%s", job_id, request.operation, request.kernel.kernel_type, answered)


def publish(new: NewJob) -> bool:
    """Send the message of a recorded job; False if the broker is unreachable, and the reconciler sends it later."""
    return _send(new.queue, message_id(new.job_id, 1))


def publish_again(queue: str, job_id: str, attempt: int) -> bool:
    """Send the message of a later attempt, to the Celery queue of the job's current queue."""
    return _send(queue, message_id(job_id, attempt))


def publish_more(queue: str) -> bool:
    """Send one more message to a queue that has more jobs than messages."""
    return _send(queue, f"more.{uuid4()}")


def end_pause(records: JobStore) -> None:
    """Let the next job that paused before its last attempt begin it, unless that of another has not ended."""
    if (entered := records.queue.end_pause()) is not None:
        log.info("job %s: its pause is over, moved to queue %s", *entered)
        publish_more(entered[1])


def publish_builds(records: JobStore, job_ids: Sequence[str]) -> None:
    """Ask build-only workers for the builds of these jobs, if nodes share builds.

    A lost message only costs time: the worker that runs the job makes every build that is not there.
    """
    if not settings().shared_builds:
        return
    try:
        room = max(0, MAX_BUILD_MESSAGES - records.queue.messages(BUILD_QUEUE))
        for job_id in job_ids[:room]:
            app.send_task(BUILD_TASK, args=[job_id], queue=BUILD_QUEUE, expires=BUILD_MESSAGE_TTL_S)
    except Exception as error:  # As in `_send`, whatever fails here.
        log.warning("no build-only worker is asked for builds: %s: %s", type(error).__name__, error)


def message_id(job_id: str, attempt: int) -> str:
    """The Celery task id: a different one for each attempt, so that Flower shows attempts separately."""
    return f"{job_id}.{attempt}"


def _send(queue: str, task_id: str) -> bool:
    """Publish a message without a job: the claim decides which job it starts (`tasks/jobs/job_queue.py`)."""
    try:
        # Without arguments: Flower shows them, and whoever reads the broker.
        app.send_task(TASK, task_id=task_id, queue=queue)
    except (OperationalError, RedisError, OSError) as error:
        log.warning("message %s is not published yet, the reconciler will send another: %s", task_id, error)
        return False
    except Exception:
        # The job is recorded and thereby accepted, whatever fails here. kombu itself fails if Redis goes away between
        # the declaration of a queue and the publication: it continues with a channel that it has closed.
        log.exception("message %s is not published, the reconciler will send another", task_id)
        return False
    return True
