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
from kernel_eval_client.events import SILENCE_S, Event, EventStream
from kernel_eval_client.flow import Flow, Protocol, Retry, Step
from kernel_eval_client.job import Job
from kernel_eval_client.pages import Pages
from kernel_eval_client.result import Result
from kernel_eval_client.submission import KernelLike, Options, Submission, SubmissionLike, to_submission
from kernel_eval_client.wire import Call, NoResponse, Response

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Client:
    """A client of one service; threads may share it.

    `url` and `api_key` default to `KERNEL_EVAL_URL` and `KERNEL_EVAL_API_KEY`. A kernel that fails is a Result.

    Methods raise the exceptions in `kernel_eval_client.errors`. CallerError: the request is at fault. RateLimited and
    ServiceError: retries (`retry`) did not help. StillRunning: `max_wait_s` seconds are over; None waits without end.
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
        """Judges one kernel without a reference."""
        return self.judge(Submission(kernel, **options), max_wait_s=max_wait_s)

    def compare(
        self,
        reference: KernelLike,
        candidate: KernelLike,
        *,
        max_wait_s: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Judges a candidate against a reference."""
        return self.judge(Submission(candidate, reference, **options), max_wait_s=max_wait_s)

    def qualify(
        self,
        reference: KernelLike,
        candidate: KernelLike,
        *,
        max_wait_s: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Compares with further checks: `Result.qualification` says whether the candidate is fit to be merged."""
        return self.judge(Submission(candidate, reference, qualify=True, **options), max_wait_s=max_wait_s)

    def judge(self, submission: SubmissionLike, *, max_wait_s: float | None = None) -> Result:
        """Submits, waits and returns the result."""
        return self._run(self._flows.judge(to_submission(submission), max_wait_s))

    def submit(self, submission: SubmissionLike) -> Job:
        """Submits without waiting, and returns the job."""
        return self._run(self._flows.submit(to_submission(submission)))

    def job(self, job_id: str) -> Job:
        """The job in its current state."""
        return self._run(self._flows.job(job_id))

    def wait(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """Waits for the job and returns its result. Raises JobFailed or JobCancelled if it ends without one."""
        return self._run(self._flows.wait(job_id, max_wait_s))

    def wait_for_job(self, job_id: str, *, max_wait_s: float | None = None) -> Job:
        """Waits for the job's end, whether it completes, fails or is cancelled."""
        return self._run(self._flows.wait_for_job(job_id, max_wait_s))

    def confirm(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """Has a passed comparison judged again, waits, and returns the new result: `Result.confirmation` compares both.

        Raises CallerError if the job has no speed-up, or its request was not kept.
        """
        return self._run(self._flows.repeat(job_id, "confirm", max_wait_s))

    def again(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """Has the job's request judged again as a new job, waits, and returns the new result.

        Raises CallerError if the request was not kept.
        """
        return self._run(self._flows.repeat(job_id, "again", max_wait_s))

    def source(self, job_id: str) -> Submission:
        """The kernel of a job and its reference, if any, as they were sent. Raises CallerError if none were kept."""
        return self._run(self._flows.source(job_id))

    def report(self, job_id: str, *, max_wait_s: float | None = None) -> str:
        """Waits for the job's end and returns the service's report as an HTML page."""
        return self._run(self._flows.report(job_id, max_wait_s))

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The artifacts of the job's result, unavailable ones too; empty until the job has a result."""
        return self._run(self._flows.artifacts(job_id))

    def artifact(self, job_id: str, artifact: Artifact) -> str:
        """The artifact's text, which the submission's own build wrote. Raises CallerError for an unavailable one."""
        return self._run(self._flows.artifact(job_id, artifact))

    def artifact_bytes(self, job_id: str, artifact: Artifact) -> bytes:
        """The bytes of an artifact: of a text, or of a profiler's report."""
        return self._run(self._flows.artifact_bytes(job_id, artifact))

    def events(self, job_id: str) -> Iterator[Event]:
        """Yields the job's events, from its first to its last. It reconnects after a broken connection."""
        stream = EventStream(job_id, self._retry, self.address.url)
        while not stream.over:
            failure: KernelEvalError | NoResponse | None = None
            try:
                with self._http.stream("GET", stream.path, headers=stream.headers(), timeout=SILENCE_S) as response:
                    stream.check_response(
                        Response(
                            response.status_code, response.headers, b"" if response.is_success else response.read()
                        )
                    )
                    for line in response.iter_lines():
                        if (event := stream.line(line)) is not None:
                            yield event
            except httpx.TransportError as error:
                failure = NoResponse(str(error) or type(error).__name__)
            except KernelEvalError as error:
                failure = error
            if not stream.over:
                time.sleep(stream.pause(failure))

    def cancel(self, job_id: str, *, wait_s: float = 0.0) -> Job:
        """Cancels the job. A running job takes a moment to stop: `wait_s` is the maximum time to wait, up to 600 s."""
        return self._run(self._flows.cancel(job_id, wait_s))

    def jobs(self, *, state: str | None = None, batch_id: str | None = None, limit: int | None = None) -> Iterator[Job]:
        """Yields the stored jobs, newest first, without their results: all of them, or the first `limit`."""
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
        """Judges every submission, `concurrency` at a time, and yields exactly one `Finished` for each when it is done.

        The order is that of completion, or with `ordered` that of the submissions; `Finished.index` is the position
        among them. A background thread reads `submissions` one by one when there is room, so that a generator may
        yield thousands. A caller that stops early stops the waiting; jobs that it has submitted go on.
        """
        with Background(lambda: AsyncClient(self.address.url, self.address.api_key, retry=self._retry)) as background:
            stream = background.client.map(submissions, concurrency=concurrency, max_wait_s=max_wait_s, ordered=ordered)

            async def next_finished() -> Finished | None:
                return await anext(stream, None)

            while (finished := background.run(next_finished())) is not None:
                yield finished

    def health(self) -> Mapping[str, Any]:
        """The body of /health, also of an unhealthy service. It sends one request and never retries."""
        return self._run(self._flows.health())

    def stats(self) -> Mapping[str, Any]:
        """The service's counters."""
        return self._run(self._flows.get("/stats"))

    def cleanup_jobs(self, *, older_than_s: float = 300) -> Mapping[str, Any]:
        """Deletes the records of jobs that finished more than `older_than_s` seconds ago."""
        return self._run(self._flows.post("/admin/cleanup-jobs", older_than=f"{older_than_s:g}"))

    def document(self) -> Mapping[str, Any]:
        """The service's OpenAPI document."""
        return self._run(self._flows.get("/openapi.json"))

    def page(self, path: str) -> str:
        """The text of any page of the service."""
        return self._run(self._flows.text(path))

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        reply: Response | NoResponse | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = self._take(step)

    def _take(self, step: Step) -> Response | NoResponse | None:
        if not isinstance(step, Call):
            time.sleep(step.seconds)
            return None
        try:
            response = self._http.request(
                step.method,
                step.path,
                content=step.body,
                params=step.all_params(),
                headers=step.all_headers(),
                timeout=step.timeout_s,
            )
        except httpx.TransportError as error:
            return NoResponse(str(error) or type(error).__name__)
        return Response(response.status_code, response.headers, response.content)
