"""Admission of a job: the arguments of the Lua script CREATE, and its reply for each job."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.access import Key
from domain.request import Request
from tasks.jobs.job_queue import queue_of_gpu
from tasks.jobs.job_view import JobView, text
from tasks.jobs.webhook_outbox import WEBHOOK_TTL_S, Webhook


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


@dataclass(frozen=True, kw_only=True)
class AcceptedJob(Accepted):
    """A job and its record, read in the same step. A job past its `queue_timeout` may still show as queued."""

    view: JobView


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


def create_arguments(
    job_id: str,
    request: Request,
    batch_id: str | None,
    key: Key | None,
    limits: Limits,
    ttl_s: int,
    index: int | None = None,
    *,
    webhook: Webhook | None = None,
    bodies: str = "",
    read: bool = False,
) -> list[str | int | float]:
    """The arguments of CREATE. `index` is the job's position in its batch.

    `bodies` is a fingerprint of all bodies under one idempotency key. With `read`, CREATE also returns the job.
    """
    stored = json.dumps(request.to_wire(), separators=(",", ":"))
    fingerprint = hashlib.sha256(stored.encode()).hexdigest()[:32]
    return [
        *(job_id, request.operation, request.kernel.kernel_type.value, request.timeout, batch_id or "", stored),
        *(key.key_id if key else "", key.max_jobs if key else 0),
        *(fingerprint, limits.queue, limits.memory),
        *(request.build_timeout or "", request.queue_timeout or ""),
        *(request.priority, request.gpu or "", request.kind, request.work, queue_of_gpu(request.gpu)),
        *("1" if request.reuse and request.replay_seed is None else "", ttl_s),
        "" if index is None else index,
        *("" if webhook is None else webhook.stored, WEBHOOK_TTL_S, bodies, "1" if read else "", limits.share),
    ]


def parse_job_reply(job_id: str, reply: list[Any]) -> AcceptedJob | Refusal:
    """Parse the reply of CREATE to a call with `read`."""
    admitted = parse_reply(reply)
    if isinstance(admitted, Refusal):
        return admitted
    return AcceptedJob(admitted.at, admitted.new, admitted.answered, view=JobView.from_lua(job_id, reply[-1]))


def parse_reply(reply: list[Any]) -> Admission:
    """Parse the reply of CREATE to a call without `read`."""
    outcome = text(reply[0])
    if outcome in ("new", "known", "answered"):
        return Accepted(float(reply[1]), outcome != "known", outcome == "answered")
    return Refusal(outcome)
