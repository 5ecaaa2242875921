"""What a client does, step by step, written once: each flow yields calls and pauses, and a client carries them out.

A flow is a generator. For a Call it is sent an Answer or a NoAnswer, for a Pause None; it returns what it found or
raises one of our errors. The synchronous and the asynchronous client differ in nothing but how they take these steps.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
from kernel_eval_client.result import AnswerError, Result
from kernel_eval_client.submission import Submission
from kernel_eval_client.wire import Answer, Call, NoAnswer, error_of, job_path

_log = logging.getLogger("kernel_eval_client")

T = TypeVar("T")
GOES_ON = 202
HOLD_S = 60.0
"""How long an answer is held at most: a proxy in between may cut longer ones off."""


@dataclass(frozen=True)
class Pause:
    """So many seconds of nothing."""

    seconds: float


Step = Call | Pause
Flow = Generator[Step, Answer | NoAnswer | None, T]


@dataclass(frozen=True)
class Retry:
    """What is tried again (no answer, 429, 5xx) and for how long.

    A call is given up `patience_s` seconds after it first went wrong, or at once where the service asks for more than
    is left. Pauses double from `first_s` to `most_s`, with some chance in them; `Retry-After` is waited for in full.
    """

    patience_s: float = 120.0
    first_s: float = 0.25
    most_s: float = 10.0

    def pause(self, failures: int, asked: float | None) -> float:
        """Seconds before the next try, after so many failures in a row."""
        backoff = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)
        return backoff if asked is None else asked + backoff * 0.1


@dataclass
class Contact:
    """Whether the service was there when it was last asked, so that an outage is logged once and not by every call."""

    lost: bool = False

    def asked(self, answer: Answer | NoAnswer) -> bool:
        """Notes it; true where an outage begins."""
        before, self.lost = self.lost, isinstance(answer, NoAnswer)
        return self.lost and not before


def exchange(call: Call, retry: Retry, url: str, contact: Contact) -> Flow[Answer]:
    """The call's 2xx answer; raises the error of any other, once trying again is of no use.

    Who waits is told by a warning in the log when no answer comes.
    """
    failures, began = 0, 0.0
    while True:
        answer = yield call
        assert answer is not None, "a call is answered"
        outage = contact.asked(answer)
        if isinstance(answer, Answer) and answer.ok:
            return answer
        error = answer.error(url) if isinstance(answer, NoAnswer) else error_of(answer)
        if not isinstance(error, (ServiceError, RateLimited)) or isinstance(error, JobFailed):
            raise error
        failures += 1
        now = time.monotonic()
        began = began if failures > 1 else now
        seconds = retry.pause(failures, answer.retry_after if isinstance(answer, Answer) else None)
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
    contact: Contact = field(default_factory=Contact)

    def get(self, path: str, **params: str) -> Flow[dict[str, Any]]:
        """A JSON object."""
        return (yield from self._json(Call("GET", path, params=params)))

    def post(self, path: str, **params: str) -> Flow[dict[str, Any]]:
        """The answer to an empty POST."""
        return (yield from self._json(Call("POST", path, params=params)))

    def health(self) -> Flow[dict[str, Any]]:
        """The body of /health, which is 503 as well when the service cannot judge. Asked once."""
        answer = yield Call("GET", "/health")
        if isinstance(answer, NoAnswer):
            raise answer.error(self.url)
        assert answer is not None, "a call is answered"
        if answer.status not in (200, 503):
            raise error_of(answer)
        return answer.json()

    def text(self, path: str) -> Flow[str]:
        """A page."""
        answer = yield from exchange(Call("GET", path), self.retry, self.url, self.contact)
        return answer.content.decode(errors="replace")

    def submit(self, submission: Submission) -> Flow[Job]:
        """The accepted job."""
        answer = yield from self._handed_in(submission, 0.0)
        body = answer.json()
        if answer.status == 200:
            # Handed in before under this idempotency key, and it has ended: the answer is the result.
            return (yield from self.job(str(body.get("job_id"))))
        return _job(body)

    def judge(self, submission: Submission, max_wait_s: float | None) -> Flow[Result]:
        """Hands in and waits; once more, under the same key, where the service has lost an accepted job's record."""
        began, named = time.monotonic(), submission.named()
        try:
            return (yield from self._judge_once(named, began, max_wait_s))
        except UnknownJob:
            return (yield from self._judge_once(named, began, max_wait_s))

    def job(self, job_id: str) -> Flow[Job]:
        """The job as it is now."""
        return _job((yield from self._json(Call("GET", job_path(job_id)))))

    def jobs(self, params: dict[str, str]) -> Flow[tuple[list[Job], str | None]]:
        """A page of jobs, and the cursor of the next one."""
        body = yield from self._json(Call("GET", "/jobs", params=params))
        return [_job(each) for each in body.get("jobs") or ()], body.get("next_cursor")

    def report(self, job_id: str, max_wait_s: float | None) -> Flow[str]:
        """The job's report as HTML, once it has ended."""
        call = Call("GET", f"{job_path(job_id)}/report")
        answer = yield from exchange(call, self.retry, self.url, self.contact)
        if answer.status == GOES_ON:
            yield from self.settled(job_id, max_wait_s)
            answer = yield from exchange(call, self.retry, self.url, self.contact)
        return answer.content.decode(errors="replace")

    def artifacts(self, job_id: str) -> Flow[list[Artifact]]:
        """What the job's result says of them; empty for one that has none."""
        job = yield from self.job(job_id)
        return list(job.result.artifacts) if job.result is not None else []

    def artifact(self, job_id: str, artifact: Artifact) -> Flow[str]:
        """The text; raises CallerError where there is none, with the reason."""
        if artifact.name is not None and not artifact.is_text:
            raise CallerError(f"{artifact.name} is no text but a file of Nsight Compute: artifact_bytes has it")
        content = yield from self.artifact_bytes(job_id, artifact)
        return content.decode(errors="replace")

    def artifact_bytes(self, job_id: str, artifact: Artifact) -> Flow[bytes]:
        """Its bytes; raises CallerError where there are none, with the reason."""
        try:
            path = artifact.path(job_id)
        except ValueError as error:
            raise CallerError(str(error)) from error
        answer = yield from exchange(Call("GET", path), self.retry, self.url, self.contact)
        return answer.content

    def cancel(self, job_id: str, wait_s: float) -> Flow[Job]:
        """The job, cancelled, or as it had ended before; with `wait_s` 0 it may still be stopping."""
        return _job((yield from self._json(Call("DELETE", job_path(job_id), hold_s=wait_s))))

    def settled(self, job_id: str, max_wait_s: float | None, began: float | None = None) -> Flow[Job]:
        """The job in its last state; raises StillRunning when that is not reached in time, counted from `began`."""
        began = time.monotonic() if began is None else began
        while True:
            left = HOLD_S if max_wait_s is None else max_wait_s - (time.monotonic() - began)
            call = Call("GET", job_path(job_id), hold_s=max(0.0, min(HOLD_S, left)))
            asked = time.monotonic()
            answer = yield from exchange(call, self.retry, self.url, self.contact)
            job = _job(answer.json())
            if job.done:
                return job
            now = time.monotonic()
            left = HOLD_S if max_wait_s is None else max_wait_s - (now - began)
            if left <= 0:
                raise StillRunning(job_id, job.state, now - began, job.raw)
            if now - asked < call.hold_s / 2:
                # All places to wait were taken, or the service is being stopped.
                yield Pause(min(left, answer.retry_after or self.retry.first_s))

    def wait(self, job_id: str, max_wait_s: float | None) -> Flow[Result]:
        """The job's result; raises JobFailed or JobCancelled where it ended without one."""
        return verdict((yield from self.settled(job_id, max_wait_s)))

    def _judge_once(self, submission: Submission, began: float, max_wait_s: float | None) -> Flow[Result]:
        hold = HOLD_S if max_wait_s is None else min(HOLD_S, max_wait_s)
        answer = yield from self._handed_in(submission, hold)
        if answer.status == 200:
            return _read(Result.from_dict, answer.json())
        job = _job(answer.json())
        return verdict((yield from self.settled(job.job_id, max_wait_s, began)))

    def _handed_in(self, submission: Submission, hold_s: float) -> Flow[Answer]:
        named = submission.named()
        key = {"Idempotency-Key": named.idempotency_key or ""}
        call = Call("POST", named.path, body=named.body(), headers=key, hold_s=hold_s)
        return (yield from exchange(call, self.retry, self.url, self.contact))

    def _json(self, call: Call) -> Flow[dict[str, Any]]:
        return (yield from exchange(call, self.retry, self.url, self.contact)).json()


def verdict(job: Job) -> Result:
    """The result of a job that is done; raises JobFailed or JobCancelled where it ended without one."""
    if job.result is not None:
        return job.result
    kind: type[KernelEvalError] = JobCancelled if job.state == "cancelled" else JobFailed
    raise kind(f"job {job.job_id} was {job.state}: {job.error}", problem=job.raw)


def _job(body: dict[str, Any]) -> Job:
    return _read(Job.from_dict, body)


def _read(reader: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
    try:
        return reader(body)
    except AnswerError as error:
        raise ServiceError(str(error)) from error
