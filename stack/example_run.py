"""One example on its way through the service: submitted, polled, and compared with its expected verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from domain.job import TERMINAL
from domain.result import Status
from stack.example import Example


@dataclass
class Trial:
    """The job of one example. `job` is the service's last response about it."""

    example: Example
    expected: Status
    job_id: str
    posted: float
    ended: float | None = None
    job: dict[str, Any] | None = None

    @classmethod
    def post(cls, client: httpx.Client, example: Example, expected: Status) -> Trial:
        """Submits the example; raises httpx.HTTPError if the service refuses it."""
        answer = client.post(example.endpoint, json=example.body)
        if answer.status_code != httpx.codes.ACCEPTED:
            raise httpx.HTTPStatusError(f"{example.name}: {answer.text}", request=answer.request, response=answer)
        return cls(example, expected, answer.json()["job_id"], time.monotonic())

    def poll(self, client: httpx.Client) -> None:
        self.job = client.get(f"/job/{self.job_id}").raise_for_status().json()
        if self.job["state"] in TERMINAL:
            self.ended = time.monotonic()

    @property
    def done(self) -> bool:
        return self.ended is not None

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.posted

    @property
    def result(self) -> dict[str, Any]:
        return (self.job or {}).get("result") or {}

    @property
    def got(self) -> str:
        """The verdict, or the state of a job that has none."""
        return str(self.result.get("verdict") or (self.job or {}).get("state", "unknown"))

    @property
    def speedup(self) -> dict[str, Any] | None:
        return self.result.get("speedup")

    @property
    def slow(self) -> bool:
        """Whether it should be significantly faster than its reference, but is not."""
        return self.example.faster and (self.speedup is None or self.speedup["ci_low"] <= 1.0)

    @property
    def as_expected(self) -> bool:
        return self.done and self.got == self.expected and not self.slow

    @property
    def detail(self) -> str:
        """The reason for its result, in one line."""
        kernel = self.result.get("kernel_exec_result") or {}
        why = kernel.get("compilation_error") or kernel.get("validation_error") or (self.job or {}).get("error") or ""
        if self.slow and self.got == self.expected:
            why = "not faster than its reference beyond doubt"
        return next((line.strip() for line in str(why).splitlines() if line.strip()), "")
