"""An HTTP request and its response, independent of the transport; and the exception for a failed response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kernel_eval_client.errors import (
    CallerError,
    JobCancelled,
    JobFailed,
    KernelEvalError,
    KeyRefused,
    RateLimited,
    ServiceError,
    UnknownJob,
    Unreachable,
)

SLACK_S = 30.0
"""Maximum time for a response beyond `hold_s`, in s."""

_PROBLEM = "urn:kernel-eval:problem:"


def job_path(job_id: str) -> str:
    """The path of a job's URL; the quoted id is one segment. Raises CallerError for an impossible id."""
    if not job_id.strip("."):
        raise CallerError(f"{job_id!r} is no job's id")
    return f"/job/{quote(job_id, safe='')}"


@dataclass(frozen=True)
class Call:
    """One HTTP request. The service may hold its response for `hold_s` seconds (long poll)."""

    method: str
    path: str
    body: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    hold_s: float = 0.0

    @property
    def timeout_s(self) -> float:
        """Maximum time to wait for the response, in s."""
        return self.hold_s + SLACK_S

    def all_params(self) -> dict[str, str]:
        """The query's parameters, with `wait` for a long poll."""
        return {**self.params, **({"wait": f"{self.hold_s:g}"} if self.hold_s > 0 else {})}

    def all_headers(self) -> dict[str, str]:
        """The headers, with the body's content type."""
        return {**self.headers, **({"Content-Type": "application/json"} if self.body is not None else {})}


@dataclass(frozen=True)
class Response:
    """An HTTP response. The names in `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def retry_after(self) -> float | None:
        """`Retry-After` in s; None without one, or for an HTTP date, which the service never sends."""
        try:
            seconds = float(self.headers.get("retry-after", ""))
        except ValueError:
            return None
        return seconds if 0 <= seconds < float("inf") else None

    def json(self) -> dict[str, Any]:
        """The body, a JSON object. Raises ServiceError for another body."""
        try:
            body = json.loads(self.content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ServiceError(
                f"the response ({self.status}) is no JSON object: {self.content[:80]!r}; is there another service?",
                status=self.status,
                problem={"next": Unreachable.usual_step},
            )
        return body


@dataclass(frozen=True)
class NoResponse:
    """The connection was refused, broke, or timed out."""

    reason: str

    def error(self, url: str) -> KernelEvalError:
        """The failure as an exception."""
        return Unreachable(f"no response from {url}: {self.reason.rstrip('.')}. Is the service running there?")


def error_of(response: Response) -> KernelEvalError:
    """The exception for a response other than 2xx."""
    try:
        problem = response.json()
    except ServiceError:
        problem = {}
    kind = str(problem.get("type", "")).partition(_PROBLEM)[2]
    detail = problem.get("detail") or problem.get("error") or f"HTTP {response.status}"
    error = _class(response.status, kind)(str(detail), status=response.status, problem=problem)
    if isinstance(error, RateLimited):
        error.retry_after = response.retry_after
    return error


def _class(status: int, kind: str) -> type[KernelEvalError]:
    by_kind = {"job-failed": JobFailed, "job-cancelled": JobCancelled, "unknown-job": UnknownJob}
    by_status = {401: KeyRefused, 403: KeyRefused, 429: RateLimited}
    return by_kind.get(kind) or by_status.get(status) or (ServiceError if status >= 500 else CallerError)
