"""A job as its record describes it at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from domain.job import Stage, State
from domain.request import DEFAULT_PRIORITY
from domain.result import with_defaults
from domain.wire import Wire
from tasks.jobs.job_summary import Summary
from tasks.node.redis_client import text

Text = bytes | str
QUEUE_TIMEOUT = "queue_timeout"
"""The cause of the end of a job that no worker started in time."""


@dataclass(frozen=True)
class TimelineEntry(Wire):
    """A stage that a job entered; `reason` says why a job went back to the queue, else it is None."""

    stage: str
    at: float
    attempt: int
    reason: str | None = None


@dataclass(frozen=True)
class FailedAttempt(Wire):
    """An attempt that ended at `at` by a fault of the service, in `stage`."""

    attempt: int
    worker: str
    stage: str
    at: float
    reason: str


@dataclass(frozen=True)
class Delivery(Wire):
    """The delivery of a job's webhook: `state` is "pending", "delivered" or "failed"."""

    state: str
    attempts: int
    last_error: str | None = None


@dataclass(frozen=True)
class JobView:
    """One job, read in one step. Times are epoch seconds of the Redis server's clock.

    `attempt` counts the workers that have started the job (0: none yet). `queue_position` is 0 for the next job, and
    None unless the job is queued, and while it pauses. `result` is the HTTP body of a completed job; `error` is why a
    job failed. `cause` is the verdict of a completed job, else the reason of its end (None before the end).
    `key_id` is the API key of the job's owner, None if the client sent none. `expired` jobs were cancelled because no
    worker started them within their `queue_timeout`. `interim_correct` is the interim verdict of a running comparison:
    the result may still differ, because later calls are compared too. `queue_key` sorts the queued jobs; `gpu` is the
    requested model. `summary` describes a completed job in short. `batch_index` is the position among the bodies of its
    batch. `name` is the client's own.
    """

    job_id: str
    operation: str
    kernel_type: str
    state: State
    stage: Stage
    attempt: int
    submitted_at: float
    queue_position: int | None
    timeline: Sequence[TimelineEntry]
    result: dict[str, Any] | None
    error: str | None
    worker: str | None
    batch_id: str | None
    timeout: int
    batch_index: int | None = None
    cancel_requested: bool = False
    key_id: str | None = None
    failed_attempts: Sequence[FailedAttempt] = ()
    summary: Summary | None = None
    webhook: Delivery | None = None
    build_timeout: int | None = None
    queue_timeout: int | None = None
    cause: str | None = None
    interim_correct: bool | None = None
    priority: int = DEFAULT_PRIORITY
    gpu: str | None = None
    queue_key: str | None = None
    name: str | None = None

    @property
    def expired(self) -> bool:
        return self.cause == QUEUE_TIMEOUT

    def overdue(self, now: float) -> bool:
        """Whether the job is queued and its queue_timeout has passed."""
        waits = self.state is State.QUEUED and self.attempt == 0 and self.queue_timeout is not None
        return waits and now > self.submitted_at + (self.queue_timeout or 0)

    def with_rank(self, rank: int | None) -> JobView:
        """With the position in the queue, if queued.

        No rank: it pauses before its last attempt; or, before its first, a worker has started it since (it was next).
        """
        if self.state is not State.QUEUED or (rank is None and self.attempt):
            return self
        return replace(self, queue_position=rank or 0)

    @classmethod
    def from_reply(cls, job_id: str, reply: Sequence[Any]) -> JobView:
        """The view of an existing job, from the reply of `read_job` in `tasks/jobs/lua`."""
        flat, result, rank = reply
        return cls.from_hash(job_id, dict(zip(flat[::2], flat[1::2], strict=True)), result).with_rank(rank)

    @classmethod
    def from_hash(cls, job_id: str, stored: Mapping[Text, Text], result: Text | None) -> JobView:
        """The view from the record's hash and its stored result; the position in the queue is not part of them."""
        fields = {text(name): text(value) for name, value in stored.items()}
        state = State(fields["state"])
        return cls(
            job_id=job_id,
            operation=fields["operation"],
            kernel_type=fields["kernel_type"],
            state=state,
            stage=Stage(fields["stage"]),
            attempt=int(fields["attempt"]),
            submitted_at=float(fields["submitted_at"]),
            queue_position=None,
            timeline=[TimelineEntry.from_wire(entry) for entry in _entries(fields, "timeline")],
            result=_as_this_job(with_defaults(json.loads(result)), job_id, fields) if result is not None else None,
            error=fields.get("error"),
            worker=fields.get("worker"),
            batch_id=fields.get("batch_id"),
            batch_index=_int(fields.get("batch_index")),
            timeout=int(fields["timeout"]),
            cancel_requested="cancel_requested" in fields,
            key_id=fields.get("key_id"),
            failed_attempts=[FailedAttempt.from_wire(entry) for entry in _entries(fields, "failed_attempts")],
            summary=Summary.from_wire(json.loads(fields["summary"])) if "summary" in fields else None,
            webhook=Delivery.from_wire(json.loads(fields["webhook"])) if "webhook" in fields else None,
            build_timeout=_int(fields.get("build_timeout")),
            queue_timeout=_int(fields.get("queue_timeout")),
            cause=fields.get("cause"),
            interim_correct=None if state.terminal or "right" not in fields else fields["right"] == "1",
            priority=int(fields.get("priority", DEFAULT_PRIORITY)),
            gpu=fields.get("gpu"),
            queue_key=fields.get("place"),
            name=fields.get("name"),
        )


def _as_this_job(result: dict[str, Any], job_id: str, fields: dict[str, str]) -> dict[str, Any]:
    """The result as the result of this job, even if an earlier job produced it."""
    if "reused_from" not in fields:
        return result
    reused_from = {"job_id": fields["reused_from"], "at": float(fields["reused_at"])}
    return {**result, "job_id": job_id, "reused_from": reused_from}


def _entries(fields: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    """The objects of a field of the record, which has them as JSON, separated by commas."""
    entries: list[dict[str, Any]] = json.loads(f"[{fields.get(name, '')}]")
    return entries


def _int(stored: str | None) -> int | None:
    return None if stored is None else int(stored)
