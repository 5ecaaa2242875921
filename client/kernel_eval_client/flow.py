"""The protocol of both clients: each flow yields calls and pauses, and a client executes them.

A flow is a generator. The client sends it a Response or a NoResponse for a Call, and None for a Pause. It returns its
result or raises an exception of `errors`. The synchronous and the asynchronous client only execute the steps.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from kernel_eval_client.artifact import Artifact
from kernel_eval_client.errors import (
    CallerError,
    JobCancelled,
    JobFailed,
    KernelEvalError,
    RateLimited,
    ServiceError,
    StillRunning,
    UnknownJob,
)
from kernel_eval_client.job import Job
from kernel_eval_client.result import ResponseError, Result
from kernel_eval_client.submission import Submission
from kernel_eval_client.wire import Call, NoResponse, Response, error_of, job_path

_log = logging.getLogger("kernel_eval_client")

T = TypeVar("T")
ACCEPTED = 202
HOLD_S = 60.0
"""Maximum time for which the client asks the service to hold a response, in s: a proxy may cut longer ones off."""


@dataclass(frozen=True)
class Pause:
    """A wait of `seconds` before the next step."""

    seconds: float


Step = Call | Pause
Flow = Generator[Step, Response | NoResponse | None, T]


@dataclass(frozen=True)
class Retry:
    """How the client retries a call that gets no response, 429 or 5xx.

    It gives up `patience_s` seconds after the first failure, or at once if `Retry-After` exceeds the rest of that.
    Pauses double from `first_pause_s` to `max_pause_s`, with random jitter; the client waits `Retry-After` in full.
    """

    patience_s: float = 120.0
    first_pause_s: float = 0.25
    max_pause_s: float = 10.0

    def pause(self, failures: int, retry_after: float | None) -> float:
        """Seconds before the next try, after `failures` consecutive failures."""
        backoff = min(self.max_pause_s, self.first_pause_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)
        return backoff if retry_after is None else retry_after + backoff * 0.1


@dataclass
class Connectivity:
    """Whether the last call got a response; it limits the log to one warning for each outage."""

    lost: bool = False

    def record(self, response: Response | NoResponse) -> bool:
        """Notes whether a call got a response. Returns True for the first call without one."""
        before, self.lost = self.lost, isinstance(response, NoResponse)
        return self.lost and not before


def exchange(call: Call, retry: Retry, url: str, connectivity: Connectivity) -> Flow[Response]:
    """The call's 2xx response. Raises the error of any other response after the retries.

    A warning in the log tells the user when the service does not respond.
    """
    failures, began = 0, 0.0
    while True:
        response = yield call
        assert response is not None, "a call is answered"
        outage = connectivity.record(response)
        if isinstance(response, Response) and response.ok:
            return response
        error = response.error(url) if isinstance(response, NoResponse) else error_of(response)
        if not isinstance(error, (ServiceError, RateLimited)) or isinstance(error, JobFailed):
            raise error
        failures += 1
        now = time.monotonic()
        began = began if failures > 1 else now
        seconds = retry.pause(failures, response.retry_after if isinstance(response, Response) else None)
        if now + seconds > began + retry.patience_s:
            raise error
        if outage:
            _log.warning("%s Trying again for %g s", error, retry.patience_s)
        yield Pause(seconds)


@dataclass(frozen=True)
class Protocol:
    """The flows of one service."""

    url: str
    retry: Retry
    connectivity: Connectivity = field(default_factory=Connectivity)

    def get(self, path: str, **params: str) -> Flow[dict[str, Any]]:
        """The JSON object at `path`."""
        return (yield from self._json(Call("GET", path, params=params)))

    def post(self, path: str, **params: str) -> Flow[dict[str, Any]]:
        """The JSON object that an empty POST returns."""
        return (yield from self._json(Call("POST", path, params=params)))

    def health(self) -> Flow[dict[str, Any]]:
        """The body of /health, with status 200, or 503 for an unhealthy service. It does not retry."""
        response = yield Call("GET", "/health")
        if isinstance(response, NoResponse):
            raise response.error(self.url)
        assert response is not None, "a call is answered"
        if response.status not in (200, 503):
            raise error_of(response)
        return response.json()

    def text(self, path: str) -> Flow[str]:
        """The text at `path`."""
        response = yield from exchange(Call("GET", path), self.retry, self.url, self.connectivity)
        return response.content.decode(errors="replace")

    def submit(self, submission: Submission) -> Flow[Job]:
        """The accepted job."""
        response = yield from self._submit(submission, 0.0)
        body = response.json()
        if response.status == 200:
            # An earlier request with this idempotency key has a result: the response is that result.
            return (yield from self.job(str(body.get("job_id"))))
        return _job(body)

    def judge(self, submission: Submission, max_wait_s: float | None) -> Flow[Result]:
        """Submits and waits for the result. If the service loses the job's record, it submits once more."""
        began, with_key = time.monotonic(), submission.with_idempotency_key()
        try:
            return (yield from self._judge_once(with_key, began, max_wait_s))
        except UnknownJob:
            return (yield from self._judge_once(with_key, began, max_wait_s))

    def job(self, job_id: str) -> Flow[Job]:
        """The job in its current state."""
        return _job((yield from self._json(Call("GET", job_path(job_id)))))

    def jobs(self, params: dict[str, str]) -> Flow[tuple[list[Job], str | None]]:
        """A page of jobs, and the cursor of the next one."""
        body = yield from self._json(Call("GET", "/jobs", params=params))
        return [_job(each) for each in body.get("jobs") or ()], body.get("next_cursor")

    def report(self, job_id: str, max_wait_s: float | None) -> Flow[str]:
        """Waits for the job's end and returns its report as HTML."""
        call = Call("GET", f"{job_path(job_id)}/report")
        response = yield from exchange(call, self.retry, self.url, self.connectivity)
        if response.status == ACCEPTED:
            yield from self.wait_for_job(job_id, max_wait_s)
            response = yield from exchange(call, self.retry, self.url, self.connectivity)
        return response.content.decode(errors="replace")

    def artifacts(self, job_id: str) -> Flow[list[Artifact]]:
        """The artifacts of the job's result; empty for a job without a result."""
        job = yield from self.job(job_id)
        return list(job.result.artifacts) if job.result is not None else []

    def artifact(self, job_id: str, artifact: Artifact) -> Flow[str]:
        """The artifact's text. Raises CallerError with the reason for an unavailable one."""
        if artifact.name is not None and not artifact.is_text:
            raise CallerError(f"{artifact.name} is no text but a file of Nsight Compute: artifact_bytes has it")
        content = yield from self.artifact_bytes(job_id, artifact)
        return content.decode(errors="replace")

    def artifact_bytes(self, job_id: str, artifact: Artifact) -> Flow[bytes]:
        """The artifact's bytes. Raises CallerError with the reason for an unavailable one."""
        try:
            path = artifact.path(job_id)
        except ValueError as error:
            raise CallerError(str(error)) from error
        response = yield from exchange(Call("GET", path), self.retry, self.url, self.connectivity)
        return response.content

    def cancel(self, job_id: str, wait_s: float) -> Flow[Job]:
        """Cancels a job and returns it. With `wait_s` 0 it may still be running; a finished job stays as it is."""
        return _job((yield from self._json(Call("DELETE", job_path(job_id), hold_s=wait_s))))

    def wait_for_job(self, job_id: str, max_wait_s: float | None, began: float | None = None) -> Flow[Job]:
        """The job in its final state. Raises StillRunning `max_wait_s` seconds after `began`, if it is not finished."""
        began = time.monotonic() if began is None else began
        while True:
            remaining = HOLD_S if max_wait_s is None else max_wait_s - (time.monotonic() - began)
            call = Call("GET", job_path(job_id), hold_s=max(0.0, min(HOLD_S, remaining)))
            sent_at = time.monotonic()
            response = yield from exchange(call, self.retry, self.url, self.connectivity)
            job = _job(response.json())
            if job.done:
                return job
            now = time.monotonic()
            remaining = HOLD_S if max_wait_s is None else max_wait_s - (now - began)
            if remaining <= 0:
                raise StillRunning(job_id, job.state, now - began, job.raw)
            if now - sent_at < call.hold_s / 2:
                # The service has no free slot for long polls, or it is shutting down.
                yield Pause(min(remaining, response.retry_after or self.retry.first_pause_s))

    def wait(self, job_id: str, max_wait_s: float | None) -> Flow[Result]:
        """The job's result. Raises JobFailed or JobCancelled if the job ends without one."""
        return verdict((yield from self.wait_for_job(job_id, max_wait_s)))

    def source(self, job_id: str) -> Flow[Submission]:
        """The kernels of a job, as they were sent."""
        kept = yield from self._json(Call("GET", f"{job_path(job_id)}/source"))
        if not isinstance(kept.get("kernel"), dict):
            raise ServiceError(f"this is no source of job {job_id}; is there another service?")
        return Submission(kept["kernel"], kept.get("reference"), label=kept.get("name"))

    def repeat(self, job_id: str, way: str, max_wait_s: float | None) -> Flow[Result]:
        """Has a job's request judged again (`way` is "again" or "confirm") and waits for the result."""
        began, key = time.monotonic(), {"Idempotency-Key": str(uuid4())}
        job = _job((yield from self._json(Call("POST", f"{job_path(job_id)}/{way}", headers=key))))
        return verdict((yield from self.wait_for_job(job.job_id, max_wait_s, began)))

    def _judge_once(self, submission: Submission, began: float, max_wait_s: float | None) -> Flow[Result]:
        hold = HOLD_S if max_wait_s is None else min(HOLD_S, max_wait_s)
        response = yield from self._submit(submission, hold)
        if response.status == 200:
            return _read(Result.from_dict, response.json())
        job = _job(response.json())
        return verdict((yield from self.wait_for_job(job.job_id, max_wait_s, began)))

    def _submit(self, submission: Submission, hold_s: float) -> Flow[Response]:
        with_key = submission.with_idempotency_key()
        key = {"Idempotency-Key": with_key.idempotency_key or ""}
        call = Call("POST", with_key.path, body=with_key.body(), headers=key, hold_s=hold_s)
        return (yield from exchange(call, self.retry, self.url, self.connectivity))

    def _json(self, call: Call) -> Flow[dict[str, Any]]:
        return (yield from exchange(call, self.retry, self.url, self.connectivity)).json()


def verdict(job: Job) -> Result:
    """The result of a finished job. Raises JobFailed or JobCancelled if it has none."""
    if job.result is not None:
        return job.result
    kind: type[KernelEvalError] = JobCancelled if job.state == "cancelled" else JobFailed
    raise kind(f"job {job.job_id} was {job.state}: {job.error}", problem=job.raw)


def _job(body: dict[str, Any]) -> Job:
    return _read(Job.from_dict, body)


def _read(reader: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
    try:
        return reader(body)
    except ResponseError as error:
        raise ServiceError(str(error)) from error
