"""One example on its way through the service: posted, polled, and held against what it should give."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from domain.job import TERMINAL, State
from domain.result import Status
from stack.example import Example


@dataclass
class Trial:
    """What is known of one example's job. `job` is the service's last answer about it."""

    example: Example
    expected: Status
    job_id: str
    posted: float
    ended: float | None = None
    job: dict[str, Any] | None = None

    @classmethod
    def post(cls, client: httpx.Client, example: Example, expected: Status) -> Trial:
        """Submits the example; raises httpx.HTTPError when the service does not take it."""
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
    def progress(self) -> str:
        """Where the job is, in the service's words."""
        job = self.job or {"state": State.QUEUED, "stage": State.QUEUED}
        if job["state"] == State.QUEUED and job.get("queue_position") is not None:
            return f"queued, {job['queue_position']} before it" if job["queue_position"] else "queued, next"
        return str(job["state"]) if job["state"] == job.get("stage") else f"{job['state']}: {job.get('stage')}"

    @property
    def got(self) -> str:
        """The verdict, or the state of a job that has none."""
        return str(self.result.get("verdict") or (self.job or {}).get("state", "unknown"))

    @property
    def speedup(self) -> dict[str, Any] | None:
        return self.result.get("speedup")

    @property
    def slow(self) -> bool:
        """It should have been faster than its reference beyond doubt, and was not."""
        return self.example.faster and (self.speedup is None or self.speedup["ci_low"] <= 1.0)

    @property
    def as_expected(self) -> bool:
        return self.done and self.got == self.expected and not self.slow

    @property
    def detail(self) -> str:
        """Why it came out as it did, in one line."""
        kernel = self.result.get("kernel_exec_result") or {}
        why = kernel.get("compilation_error") or kernel.get("validation_error") or (self.job or {}).get("error") or ""
        if self.slow and self.got == self.expected:
            why = "not faster than its reference beyond doubt"
        return next((line.strip() for line in str(why).splitlines() if line.strip()), "")
