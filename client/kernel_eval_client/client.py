"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from kernel_eval_client.address import Address
from kernel_eval_client.artifact import Artifact
from kernel_eval_client.async_client import CONCURRENCY, UNLIMITED, AsyncClient, Finished
from kernel_eval_client.background import Background
from kernel_eval_client.errors import KernelEvalError
from kernel_eval_client.events import SILENCE_S, Event, Following
from kernel_eval_client.flow import Flow, Protocol, Retry, Step
from kernel_eval_client.job import Job
from kernel_eval_client.pages import Pages
from kernel_eval_client.result import Result
from kernel_eval_client.submission import KernelLike, Options, Submission, SubmissionLike, submission_of
from kernel_eval_client.wire import Answer, Call, NoAnswer

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Client:
    """Asks one service; threads may share it.

    `url` and `api_key` come from `KERNEL_EVAL_URL` and `KERNEL_EVAL_API_KEY` where they are not given. A kernel that
    fails is a Result. What raises is in `kernel_eval_client.errors`: CallerError for a request at fault, RateLimited
    and ServiceError once trying again (`retry`) was of no use, StillRunning when `max_wait_s` is over; None waits for
    ever.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None, *, retry: Retry | None = None) -> None:
        self.address = Address.find(url, api_key)
        self._retry = retry or Retry()
        self._flows = Protocol(self.address.url, self._retry)
        self._http = httpx.Client(
            base_url=self.address.url,
            headers=self.address.headers(),
            limits=UNLIMITED,
            trust_env=not self.address.is_local,
        )

    def evaluate(self, kernel: KernelLike, *, max_wait_s: float | None = None, **options: Unpack[Options]) -> Result:
        """The verdict about one kernel."""
        return self.judge(Submission(kernel, **options), max_wait_s=max_wait_s)

    def compare(
        self,
        reference: KernelLike,
        candidate: KernelLike,
        *,
        max_wait_s: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """The verdict about a kernel against a reference."""
        return self.judge(Submission(candidate, reference, **options), max_wait_s=max_wait_s)

    def judge(self, submission: SubmissionLike, *, max_wait_s: float | None = None) -> Result:
        """The verdict about a submission."""
        return self._run(self._flows.judge(submission_of(submission), max_wait_s))

    def submit(self, submission: SubmissionLike) -> Job:
        """Hands in and does not wait."""
        return self._run(self._flows.submit(submission_of(submission)))

    def job(self, job_id: str) -> Job:
        """The job as it is now."""
        return self._run(self._flows.job(job_id))

    def wait(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """The job's result, once there is one; raises JobFailed or JobCancelled where it ends without."""
        return self._run(self._flows.wait(job_id, max_wait_s))

    def settled(self, job_id: str, *, max_wait_s: float | None = None) -> Job:
        """The job once it has ended, however it did."""
        return self._run(self._flows.settled(job_id, max_wait_s))

    def report(self, job_id: str, *, max_wait_s: float | None = None) -> str:
        """The service's report of a job as an HTML page, once it has ended."""
        return self._run(self._flows.report(job_id, max_wait_s))

    def artifacts(self, job_id: str) -> list[Artifact]:
        """What is kept beside the job's result, and what cannot be had of what was asked for; empty before it has."""
        return self._run(self._flows.artifacts(job_id))

    def artifact(self, job_id: str, artifact: Artifact) -> str:
        """Its text. It comes out of the submission's own build; raises CallerError where there is none."""
        return self._run(self._flows.artifact(job_id, artifact))

    def artifact_bytes(self, job_id: str, artifact: Artifact) -> bytes:
        """Its bytes: also of a profiler's report, which is no text."""
        return self._run(self._flows.artifact_bytes(job_id, artifact))

    def events(self, job_id: str) -> Iterator[Event]:
        """What happens to the job as it happens, from its beginning to its end, through connections that break."""
        following = Following(job_id, self._retry, self.address.url)
        while not following.over:
            gone: KernelEvalError | NoAnswer | None = None
            try:
                with self._http.stream("GET", following.path, headers=following.headers(), timeout=SILENCE_S) as answer:
                    following.opened(
                        Answer(answer.status_code, answer.headers, b"" if answer.is_success else answer.read())
                    )
                    for line in answer.iter_lines():
                        if (event := following.line(line)) is not None:
                            yield event
            except httpx.TransportError as error:
                gone = NoAnswer(str(error) or type(error).__name__)
            except KernelEvalError as error:
                gone = error
            if not following.over:
                time.sleep(following.pause(gone))

    def cancel(self, job_id: str, *, wait_s: float = 0.0) -> Job:
        """Cancels; a running job takes a moment, which `wait_s` (at most 600) waits for."""
        return self._run(self._flows.cancel(job_id, wait_s))

    def jobs(self, *, state: str | None = None, batch_id: str | None = None, limit: int | None = None) -> Iterator[Job]:
        """The jobs that are kept, newest first, without their results; all of them, or the first `limit`."""
        pages = Pages(state, batch_id, limit)
        while pages.more:
            yield from pages.take(self._run(self._flows.jobs(pages.params())))

    def map(
        self,
        submissions: Iterable[SubmissionLike],
        *,
        concurrency: int = CONCURRENCY,
        max_wait_s: float | None = None,
        ordered: bool = False,
    ) -> Iterator[Finished]:
        """Judges them all, so many at a time, and gives each back when it is done: exactly one `Finished` for each.

        In the order in which they are done, or with `ordered` in which they came; `Finished.index` tells that. They are
        taken one by one when there is room, in a thread of ours, so that a generator may make thousands. Who stops
        early ends the waiting; jobs that were handed in by then go on.
        """
        with Background(lambda: AsyncClient(self.address.url, self.address.api_key, retry=self._retry)) as behind:
            stream = behind.client.map(submissions, concurrency=concurrency, max_wait_s=max_wait_s, ordered=ordered)

            async def following() -> Finished | None:
                return await anext(stream, None)

            while (finished := behind.run(following())) is not None:
                yield finished

    def health(self) -> Mapping[str, Any]:
        """The body of /health, also of a service that is not healthy. Asked once, without trying again."""
        return self._run(self._flows.health())

    def stats(self) -> Mapping[str, Any]:
        """The service's counters."""
        return self._run(self._flows.get("/stats"))

    def cleanup_jobs(self, *, older_than_s: float = 300) -> Mapping[str, Any]:
        """Has finished jobs forgotten."""
        return self._run(self._flows.post("/admin/cleanup-jobs", older_than=f"{older_than_s:g}"))

    def document(self) -> Mapping[str, Any]:
        """The service's OpenAPI document."""
        return self._run(self._flows.get("/openapi.json"))

    def page(self, path: str) -> str:
        """The text of any page of the service."""
        return self._run(self._flows.text(path))

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        reply: Answer | NoAnswer | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = self._take(step)

    def _take(self, step: Step) -> Answer | NoAnswer | None:
        if not isinstance(step, Call):
            time.sleep(step.seconds)
            return None
        try:
            answer = self._http.request(
                step.method,
                step.path,
                content=step.body,
                params=step.all_params(),
                headers=step.all_headers(),
                timeout=step.timeout_s,
            )
        except httpx.TransportError as error:
            return NoAnswer(str(error) or type(error).__name__)
        return Answer(answer.status_code, answer.headers, answer.content)
