"""A job as its record shows it at one moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from domain.job import Stage, State
from domain.request import DEFAULT_PRIORITY

Text = bytes | str


def text(value: Any) -> str:
    """A Redis answer as text, whether or not the client decodes."""
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class JobView:
    """One job, read at once. Times are epoch seconds of the Redis server's clock.

    `attempt` counts the workers that have taken the job (0: none yet). `queue_position` is 0 for the job that is next
    and None unless it is queued. `failed_attempts` are those that ended by a fault of the service: `attempt`, `worker`,
    `stage`, `at`, `reason`. `result` is the HTTP body of a completed job, `error` says why a job failed.
    `cause` is the verdict of a completed job, else why it ended so (None before it has).
    `key_id` is the API key that the job belongs to, None when it was handed in without. `expired` jobs were cancelled
    because nobody began them within their `queue_timeout`. `interim_correct`: of a comparison that runs, whether all
    compared outputs are right; later calls are compared too, and the result has the last word. `place`: where it stands
    among the queued ones, `gpu` the model that it asks for. `summary` says in short what a completed one found,
    `webhook` whether its end has been told where that was asked for: `state`, `attempts`, `last_error`. `batch_index`
    is its place among the bodies of its batch.
    """

    job_id: str
    operation: str
    kernel_type: str
    state: State
    stage: Stage
    attempt: int
    submitted_at: float
    queue_position: int | None
    timeline: list[dict[str, Any]]
    result: dict[str, Any] | None
    error: str | None
    worker: str | None
    batch_id: str | None
    timeout: int
    batch_index: int | None = None
    cancel_requested: bool = False
    key_id: str | None = None
    failed_attempts: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    webhook: dict[str, Any] | None = None
    build_timeout: int | None = None
    queue_timeout: int | None = None
    expired: bool = False
    cause: str | None = None
    interim_correct: bool | None = None
    priority: int = DEFAULT_PRIORITY
    gpu: str | None = None
    place: str | None = None

    def overdue(self, now: float) -> bool:
        """Whether it is queued for longer than it wants to be."""
        waits = self.state is State.QUEUED and self.attempt == 0 and self.queue_timeout is not None
        return waits and now > self.submitted_at + (self.queue_timeout or 0)

    def placed(self, rank: int | None) -> JobView:
        """With its position where it is queued; one that has been begun meanwhile was the next."""
        return replace(self, queue_position=rank or 0) if self.state is State.QUEUED else self

    @classmethod
    def looked(cls, job_id: str, found: Sequence[Any]) -> JobView:
        """What LOOK of `tasks/jobs/job_lua.py` says of a job that is there."""
        flat, result, rank = found
        return cls.read(job_id, dict(zip(flat[::2], flat[1::2], strict=True)), result).placed(rank)

    @classmethod
    def read(cls, job_id: str, stored: dict[Text, Text], result: Text | None) -> JobView:
        """From the record's hash and its stored result; its position in the queue is not there."""
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
            timeline=json.loads(f"[{fields['timeline']}]"),
            result=_own(json.loads(result), job_id, fields) if result is not None else None,
            error=fields.get("error") or None,
            worker=fields.get("worker") or None,
            batch_id=fields.get("batch_id") or None,
            batch_index=int(fields["batch_index"]) if "batch_index" in fields else None,
            timeout=int(fields["timeout"]),
            cancel_requested="cancel_requested" in fields,
            key_id=fields.get("key_id"),
            failed_attempts=json.loads(f"[{fields.get('failed_attempts', '')}]"),
            summary=json.loads(fields["summary"]) if "summary" in fields else None,
            webhook=json.loads(fields["webhook"]) if "webhook" in fields else None,
            build_timeout=_seconds(fields.get("build_timeout")),
            queue_timeout=_seconds(fields.get("queue_timeout")),
            expired=fields.get("error_type") == "queue_timeout",
            cause=fields.get("cause"),
            interim_correct=None if state.terminal or "right" not in fields else fields["right"] == "1",
            priority=int(fields.get("priority", DEFAULT_PRIORITY)),
            gpu=fields.get("gpu"),
            place=fields.get("place"),
        )


def _own(result: dict[str, Any], job_id: str, fields: dict[str, str]) -> dict[str, Any]:
    """The result as this job's, which may be an earlier one's."""
    if "reused_from" not in fields:
        return result
    reused_from = {"job_id": fields["reused_from"], "at": float(fields["reused_at"])}
    return {**result, "job_id": job_id, "reused_from": reused_from}


def _seconds(stored: str | None) -> int | None:
    return None if stored is None else int(stored)
