"""One request and what came of it, without saying how it travels; and which error an answer is."""

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
"""What an answer may take beyond the time that it was asked to be held."""

_PROBLEM = "urn:kernel-eval:problem:"


def job_path(job_id: str) -> str:
    """Of that job's URL: an id is one segment, whatever it holds. Raises CallerError for what cannot be one."""
    if not job_id.strip("."):
        raise CallerError(f"{job_id!r} is no job's id")
    return f"/job/{quote(job_id, safe='')}"


@dataclass(frozen=True)
class Call:
    """One HTTP request. `hold_s` is how long the service is asked to hold its answer."""

    method: str
    path: str
    body: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    hold_s: float = 0.0

    @property
    def timeout_s(self) -> float:
        """How long to wait for the answer."""
        return self.hold_s + SLACK_S

    def all_params(self) -> dict[str, str]:
        """Of the query, with the wait that is asked for."""
        return {**self.params, **({"wait": f"{self.hold_s:g}"} if self.hold_s > 0 else {})}

    def all_headers(self) -> dict[str, str]:
        """With the body's type."""
        return {**self.headers, **({"Content-Type": "application/json"} if self.body is not None else {})}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; the names in `headers` are in lower case. `json` raises ServiceError for another body."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300

    @property
    def retry_after(self) -> float | None:
        """Seconds; None where the answer does not say. An HTTP date is not read: the service never sends one."""
        try:
            seconds = float(self.headers.get("retry-after", ""))
        except ValueError:
            return None
        return seconds if 0 <= seconds < float("inf") else None

    def json(self) -> dict[str, Any]:
        """The body, a JSON object."""
        try:
            body = json.loads(self.content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ServiceError(
                f"the answer ({self.status}) is no JSON object: {self.content[:80]!r}; is there another service?",
                status=self.status,
            )
        return body


@dataclass(frozen=True)
class NoAnswer:
    """The connection was refused, broke, or timed out."""

    reason: str

    def error(self, url: str) -> KernelEvalError:
        """As an exception."""
        return Unreachable(f"no answer from {url}: {self.reason.rstrip('.')}. Is the service running there?")


def error_of(answer: Answer) -> KernelEvalError:
    """The exception that an answer other than 2xx is."""
    try:
        problem = answer.json()
    except ServiceError:
        problem = {}
    kind = str(problem.get("type", "")).partition(_PROBLEM)[2]
    detail = problem.get("detail") or problem.get("error") or f"HTTP {answer.status}"
    error = _class(answer.status, kind)(str(detail), status=answer.status, problem=problem)
    if isinstance(error, RateLimited):
        error.retry_after = answer.retry_after
    return error


def _class(status: int, kind: str) -> type[KernelEvalError]:
    by_kind = {"job-failed": JobFailed, "job-cancelled": JobCancelled, "unknown-job": UnknownJob}
    by_status = {401: KeyRefused, 403: KeyRefused, 429: RateLimited}
    return by_kind.get(kind) or by_status.get(status) or (ServiceError if status >= 500 else CallerError)
