"""What can go wrong, by whose fault it is. A kernel that fails is a result, and none of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_eval_client.quoted import plain_lines


@dataclass(frozen=True)
class FieldError:
    """One field at fault: the steps to it from the body's root, and what is wrong with it."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        told = f"{'.'.join(map(str, self.path))}: {self.message}" if self.path else self.message
        return plain_lines(told)


class KernelEvalError(Exception):
    """The base of all. `status` is the HTTP status, None where there was no answer; `problem` its problem details.

    The message is printed where nobody catches it, so that it has no control characters; `problem` is as it came.
    """

    def __init__(self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(plain_lines(message))
        self.status = status
        self.problem: Mapping[str, Any] = problem or {}


class CallerError(KernelEvalError):
    """The request is at fault: it will be refused again as it is. `fields` says where."""

    @property
    def fields(self) -> tuple[FieldError, ...]:
        """Every field at fault, with its path into the body."""
        errors = self.problem.get("errors") or ()
        return tuple(FieldError(tuple(each.get("path") or ()), str(each.get("message"))) for each in errors)


class KeyRefused(CallerError):
    """The API key is missing, not known, or does not cover this."""


class UnknownJob(CallerError):
    """The job was never accepted, is no longer kept, or belongs to another key or another server."""


class JobCancelled(KernelEvalError):
    """The job was cancelled, so that there is no verdict."""


class RateLimited(KernelEvalError):
    """The key asked too much. `retry_after` is in seconds, None where the service did not say."""

    retry_after: float | None = None


class ServiceError(KernelEvalError):
    """The service is at fault, or what lies between: not the kernel and not the request."""


class Unreachable(ServiceError):
    """No answer came: nothing listens there, or the connection broke again and again."""


class JobFailed(ServiceError):
    """The service gave up judging the kernel after all its attempts. Submit it again, under a new idempotency key."""


class StillRunning(KernelEvalError, TimeoutError):
    """The time to wait is over and the job goes on: ask again with `wait(error.job_id)`. `problem` is the job then."""

    def __init__(self, job_id: str, state: str, seconds: float, job: Mapping[str, Any] | None = None) -> None:
        told = f"job {job_id} is {state} after {seconds:.3g} s; it goes on, and can be waited for again"
        super().__init__(told, problem=job)
        self.job_id = job_id
        self.state = state
