"""A job in its state at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.result import ResponseError, Result
from kernel_eval_client.typed_members import member, text

TERMINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True)
class Job:
    """A snapshot of one job, as the service last reported it. Times are epoch seconds.

    `state` is queued, building, waiting, running, completed, failed or cancelled: `completed` is every verdict about
    a kernel, `failed` the service's own fault. `queue_position` 0 is next.
    `explanation` says in a sentence what was found, None in a list; `batch_index` which of its batch's bodies it was.
    `name` is the submission's label, `next` what to do next, None in a list.
    """

    job_id: str
    state: str
    stage: str
    operation: str | None
    kernel_type: str | None
    queue_position: int | None
    submitted_at: float | None
    worker: str | None
    batch_id: str | None
    attempt: int
    cancel_requested: bool
    timeline: Sequence[Mapping[str, Any]]
    failed_attempts: Sequence[Mapping[str, Any]]
    error: str | None
    result: Result | None
    raw: Mapping[str, Any] = field(repr=False)
    explanation: str | None = None
    batch_index: int | None = None
    name: str | None = None
    next: str | None = None

    @property
    def verdict(self) -> str | None:
        """The verdict; None for a job without one. A job from a list has it in its `summary`."""
        return self.result.verdict if self.result is not None else text(member(self.raw, "summary", "verdict"))

    @property
    def done(self) -> bool:
        """Whether the job is completed, failed or cancelled."""
        return self.state in TERMINAL

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Job:
        """Reads a job of /job/<job_id>, /jobs or a submission. Raises ResponseError for other JSON."""
        try:
            result = wire.get("result")
            return cls(
                job_id=wire["job_id"],
                state=wire["state"],
                stage=wire["stage"],
                operation=wire.get("operation"),
                kernel_type=wire.get("kernel_type"),
                queue_position=wire.get("queue_position"),
                submitted_at=wire.get("submitted_at"),
                worker=wire.get("worker"),
                batch_id=wire.get("batch_id"),
                attempt=wire.get("attempt") or 0,
                cancel_requested=bool(wire.get("cancel_requested")),
                timeline=tuple(wire.get("timeline") or ()),
                failed_attempts=tuple(wire.get("failed_attempts") or ()),
                error=wire.get("error"),
                result=None if result is None else Result.from_dict(result),
                raw=wire,
                explanation=wire.get("explanation"),
                batch_index=wire.get("batch_index"),
                name=text(wire.get("name")),
                next=text(wire.get("next")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ResponseError(f"this is no job of a kernel evaluation service: {error!r}") from error
