"""Whether a job may be recorded, and what became of the try: one answer of the script CREATE for each job."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.access import Key
from domain.request import Request
from tasks.jobs.job_queue import line_of_gpu
from tasks.jobs.job_view import JobView, text
from tasks.jobs.webhook_outbox import KEPT_S, Webhook


class Refusal(StrEnum):
    """Why nothing was recorded. Like the nothing that it stands for, it counts as false."""

    KEY_IS_FULL = "key"
    """The key has as many jobs that are not terminal as it may."""
    QUEUE_IS_FULL = "queue"
    MEMORY_IS_FULL = "memory"
    """The records hold as many bytes as they may."""
    KEY_MEMORY_IS_FULL = "key memory"
    """The records of the key's jobs hold as many bytes as one key's may."""
    OTHER_REQUEST = "other"
    """Under this id, which follows from an idempotency key, another request is recorded, or in a batch other bodies."""
    NO_SUCH_GPU = "gpu"
    """No worker ever had the GPU which the request names."""
    GPU_IS_AWAY = "gpu away"
    """No worker has it now."""

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Recorded:
    """A job that is recorded since `at` (epoch seconds of the records' clock); `new` unless it was there before.

    One that is `answered` has its result already, an earlier job's: nothing is to be done.
    """

    at: float
    new: bool
    answered: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen(Recorded):
    """One that was read in the same step; what had overrun its `queue_timeout` may be queued in it still."""

    view: JobView


@dataclass(frozen=True)
class Limits:
    """Of all jobs together: how many may be queued, and the bytes of all requests and results that are kept.

    Of these bytes one key may have its `share`, so that there is room for others whatever it sends.
    """

    queue: int = 1 << 40
    memory: int = 1 << 50

    @property
    def share(self) -> int:
        return self.memory // 2


UNLIMITED = Limits()

Admission = Recorded | Refusal


def arguments(
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
    """CREATE's; `index` is the place in its batch, `bodies` a fingerprint of all that came with it under one key.

    With `read` it says the job as well.
    """
    stored = json.dumps(request.to_wire(), separators=(",", ":"))
    fingerprint = hashlib.sha256(stored.encode()).hexdigest()[:32]
    return [
        *(job_id, request.operation, request.kernel.kernel_type.value, request.timeout, batch_id or "", stored),
        *(key.key_id if key else "", key.max_jobs if key else 0),
        *(fingerprint, limits.queue, limits.memory),
        *(request.build_timeout or "", request.queue_timeout or ""),
        *(request.priority, request.gpu or "", request.kind, request.work, line_of_gpu(request.gpu)),
        *("1" if request.reuse and request.replay_seed is None else "", ttl_s),
        "" if index is None else index,
        *("" if webhook is None else webhook.stored, KEPT_S, bodies, "1" if read else "", limits.share),
    ]


def seen(job_id: str, said: list[Any]) -> Seen | Refusal:
    """What CREATE says that was to read the job."""
    admitted = answer(said)
    if isinstance(admitted, Refusal):
        return admitted
    return Seen(admitted.at, admitted.new, admitted.answered, view=JobView.looked(job_id, said[-1]))


def answer(said: list[Any]) -> Admission:
    """What CREATE says."""
    word = text(said[0])
    if word in ("new", "known", "answered"):
        return Recorded(float(said[1]), word != "known", word == "answered")
    return Refusal(word)
