"""Admission of a job: the argument of `lua/create_job.lua`, and its reply for each job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.access import Key
from domain.request import Request
from domain.settings import settings
from tasks.jobs.job_queue import queue_of_gpu, queue_of_worker
from tasks.jobs.job_view import JobView
from tasks.jobs.kept_request import MAX_KEPT
from tasks.jobs.webhook_outbox import Webhook
from tasks.node.redis_client import text


class Refusal(StrEnum):
    """Why a job was not recorded. A refusal is false, so that callers can write `if not admitted`."""

    KEY_IS_FULL = "key"
    """The API key has its maximum of open (not yet terminal) jobs."""
    QUEUE_IS_FULL = "queue"
    MEMORY_IS_FULL = "memory"
    """The records of all jobs hold the maximum number of bytes."""
    KEY_MEMORY_IS_FULL = "key memory"
    """The records of this API key's jobs hold the maximum number of bytes for one key."""
    OTHER_REQUEST = "other"
    """The job id comes from an idempotency key that already recorded another request, or a batch with other bodies."""
    NO_SUCH_GPU = "gpu"
    """No worker has ever had the GPU model that the request names."""
    GPU_IS_AWAY = "gpu away"
    """No live worker has the GPU model now; one had it before."""

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Accepted:
    """A job that was recorded at `at` (epoch seconds of Redis' clock); `new` unless it was recorded before.

    `answered` means that the job took over the result of an earlier job, so no worker needs to run it.
    """

    at: float
    new: bool
    answered: bool = False

    @classmethod
    def from_reply(cls, reply: Sequence[Any]) -> Accepted | Refusal:
        """Parse the reply of `lua/create_job.lua`."""
        outcome = text(reply[0])
        if outcome in ("new", "known", "answered"):
            return cls(float(reply[1]), outcome != "known", outcome == "answered")
        return Refusal(outcome)


@dataclass(frozen=True, kw_only=True)
class AcceptedJob(Accepted):
    """A job and its record, read in the same step. A job past its `queue_timeout` may still show as queued."""

    view: JobView

    @classmethod
    def of_reply(cls, job_id: str, reply: Sequence[Any]) -> AcceptedJob | Refusal:
        """Parse the reply to a call that asked for the job as well."""
        admitted = Accepted.from_reply(reply)
        if isinstance(admitted, Refusal):
            return admitted
        return cls(admitted.at, admitted.new, admitted.answered, view=JobView.from_reply(job_id, reply[-1]))


@dataclass(frozen=True)
class Limits:
    """Limits over all jobs: maximum number of queued jobs, and maximum bytes of requests and results together.

    One API key may use at most `share` of these bytes, so that one client cannot fill the memory for all others.
    """

    queue: int = 1 << 40
    memory: int = 1 << 50

    @property
    def share(self) -> int:
        return self.memory // 2


UNLIMITED = Limits()

Admission = Accepted | Refusal


@dataclass(frozen=True)
class NewJob:
    """A job to record; `worker` is the one that should run it.

    `batch_index` is its position among the bodies of its batch.
    """

    job_id: str
    request: Request
    batch_index: int | None = None
    webhook: Webhook | None = None
    worker: str | None = None

    @property
    def queue(self) -> str:
        """The queue that it enters first. The reconciler moves it if the worker goes away."""
        return queue_of_worker(self.worker) if self.worker is not None else queue_of_gpu(self.request.gpu)


def create_arguments(
    new: NewJob,
    *,
    batch_id: str | None,
    key: Key | None,
    limits: Limits,
    bodies: str = "",
    read: bool = False,
) -> tuple[dict[str, Any], str]:
    """The argument of `lua/create_job.lua`, and the request as it is stored.

    `bodies` is a fingerprint of all bodies under one idempotency key. With `read`, the reply has the job as well.
    """
    request, webhook = new.request, new.webhook
    wire = request.to_wire()
    stored, unnamed = (json.dumps(each, separators=(",", ":")) for each in (wire, {**wire, "name": None}))
    argument = {
        "id": new.job_id,
        "name": request.name,
        "operation": request.operation,
        "kernel_type": request.kernel.kernel_type,
        "timeout": request.timeout,
        "build_timeout": request.build_timeout,
        "queue_timeout": request.queue_timeout,
        "priority": request.priority,
        "gpu": request.gpu,
        "kind": request.kind,
        "work": request.work,
        "fingerprint": hashlib.sha256(unnamed.encode()).hexdigest()[:32],
        "queue": new.queue,
        "reuse": request.reuse and request.replay_seed is None,
        "keep": MAX_KEPT if settings().keep_sources else None,
        "batch_id": batch_id,
        "batch_index": new.batch_index,
        "bodies": bodies or None,
        "key_id": key.key_id if key else None,
        "key_max_jobs": key.max_jobs if key else None,
        "max_queued": limits.queue,
        "max_bytes": limits.memory,
        "max_bytes_of_key": limits.share,
        "webhook": webhook.stored if webhook else None,
        "read": read,
    }
    return argument, stored
