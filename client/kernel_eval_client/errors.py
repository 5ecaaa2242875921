"""The client's exceptions, by the party at fault. A kernel that fails is a result and raises none of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kernel_eval_client.untrusted_text import plain_lines


@dataclass(frozen=True)
class FieldError:
    """One invalid field: its path from the root of the body, and the error in it."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        text = f"{'.'.join(map(str, self.path))}: {self.message}" if self.path else self.message
        return plain_lines(text)


class KernelEvalError(Exception):
    """The base class. `status` is the HTTP status, None without a response; `problem` has the problem details.

    The message has no control characters, since Python prints an uncaught one. `problem` is as the service sent it.
    """

    usual_step: ClassVar[str | None] = None
    """The next step after an error of this kind, where the service names none."""

    def __init__(self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(plain_lines(message))
        self.status = status
        self.problem: Mapping[str, Any] = problem or {}

    @property
    def next(self) -> str | None:
        """The next step, as the service says it; else as the kind of error suggests."""
        step = self.problem.get("next")
        return step if isinstance(step, str) else self.usual_step


class CallerError(KernelEvalError):
    """The request is at fault, and the service would refuse it again. `fields` lists the invalid fields."""

    @property
    def fields(self) -> tuple[FieldError, ...]:
        """Every invalid field, with its path in the body."""
        errors = self.problem.get("errors") or ()
        return tuple(FieldError(tuple(each.get("path") or ()), str(each.get("message"))) for each in errors)


class KeyRefused(CallerError):
    """The API key is missing, unknown, or lacks the scope for this request."""

    usual_step = "Set KERNEL_EVAL_API_KEY to a key of this service."


class UnknownJob(CallerError):
    """The job was never accepted, its record has expired, or it belongs to another key or server."""

    usual_step = "Check the id against the list of jobs."


class JobCancelled(KernelEvalError):
    """The job was cancelled and has no verdict."""

    usual_step = "Submit it again if you still want the verdict."


class RateLimited(KernelEvalError):
    """The key has sent too many requests. `retry_after` is in seconds, or None if the service gave no time."""

    usual_step = "Wait, then send it again."
    retry_after: float | None = None


class ServiceError(KernelEvalError):
    """The service or the network is at fault, and neither the kernel nor the request."""

    usual_step = "Send it again later: the service is at fault, not the kernel."


class Unreachable(ServiceError):
    """The service did not respond: nothing listens there, or every connection broke."""

    usual_step = "Check the URL (`--url`, or KERNEL_EVAL_URL), and that the service runs there."


class JobFailed(ServiceError):
    """The service failed in every attempt to judge the kernel. Submit it again, with a new idempotency key."""

    usual_step = "Submit it again: the service failed, not the kernel."


class StillRunning(KernelEvalError, TimeoutError):
    """The time to wait is over and the job goes on: call `wait(error.job_id)`. `problem` is the job at that time."""

    def __init__(self, job_id: str, state: str, seconds: float, job: Mapping[str, Any] | None = None) -> None:
        message = f"job {job_id} is {state} after {seconds:.3g} s; it goes on, and can be waited for again"
        super().__init__(message, problem=job)
        self.job_id = job_id
        self.state = state

    @property
    def next(self) -> str:
        """How to wait on."""
        return f"Wait for job {self.job_id} again; it goes on."
