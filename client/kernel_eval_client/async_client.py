"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from kernel_eval_client.address import Address
from kernel_eval_client.artifact import Artifact
from kernel_eval_client.errors import CallerError, KernelEvalError
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
CONCURRENCY = 32
AHEAD = 4
"""With `ordered`, at most this many times `concurrency` results wait for an earlier one."""
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=64)


@dataclass(frozen=True)
class Finished:
    """One of many submissions with its result, or with the error in place of it.

    `index` is its position among the submissions. An object that is no submission gets an error, and is in
    `submission.kernel`.
    """

    index: int
    submission: Submission
    result: Result | None
    error: KernelEvalError | None


class AsyncClient:
    """An asynchronous client of one service, with the methods of `Client`; `map` and `jobs` are async iterators."""

    def __init__(self, url: str | None = None, api_key: str | None = None, *, retry: Retry | None = None) -> None:
        self.address = Address.find(url, api_key)
        self._flows = Protocol(self.address.url, retry or Retry())
        self._http = httpx.AsyncClient(
            base_url=self.address.url,
            headers=self.address.headers(),
            limits=UNLIMITED,
            trust_env=not self.address.is_local,
        )

    async def evaluate(
        self, kernel: KernelLike, *, max_wait_s: float | None = None, **options: Unpack[Options]
    ) -> Result:
        """Judges one kernel without a reference."""
        return await self.judge(Submission(kernel, **options), max_wait_s=max_wait_s)

    async def compare(
        self,
        reference: KernelLike,
        candidate: KernelLike,
        *,
        max_wait_s: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Judges a candidate against a reference."""
        return await self.judge(Submission(candidate, reference, **options), max_wait_s=max_wait_s)

    async def qualify(
        self,
        reference: KernelLike,
        candidate: KernelLike,
        *,
        max_wait_s: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Compares with further checks: `Result.qualification` says whether the candidate is fit to be merged."""
        return await self.judge(Submission(candidate, reference, qualify=True, **options), max_wait_s=max_wait_s)

    async def judge(self, submission: SubmissionLike, *, max_wait_s: float | None = None) -> Result:
        """Submits, waits and returns the result."""
        return await self._run(self._flows.judge(to_submission(submission), max_wait_s))

    async def submit(self, submission: SubmissionLike) -> Job:
        """Submits without waiting, and returns the job."""
        return await self._run(self._flows.submit(to_submission(submission)))

    async def job(self, job_id: str) -> Job:
        """The job in its current state."""
        return await self._run(self._flows.job(job_id))

    async def wait(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """Waits for the job and returns its result."""
        return await self._run(self._flows.wait(job_id, max_wait_s))

    async def wait_for_job(self, job_id: str, *, max_wait_s: float | None = None) -> Job:
        """Waits for the job's end, whether it completes, fails or is cancelled."""
        return await self._run(self._flows.wait_for_job(job_id, max_wait_s))

    async def confirm(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """Has a passed comparison judged again, waits, and returns the new result: `Result.confirmation` compares both.

        Raises CallerError if the job has no speed-up, or its request was not kept.
        """
        return await self._run(self._flows.repeat(job_id, "confirm", max_wait_s))

    async def again(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """Has the job's request judged again as a new job, waits, and returns the new result.

        Raises CallerError if the request was not kept.
        """
        return await self._run(self._flows.repeat(job_id, "again", max_wait_s))

    async def source(self, job_id: str) -> Submission:
        """The kernel of a job and its reference, if any, as they were sent. Raises CallerError if none were kept."""
        return await self._run(self._flows.source(job_id))

    async def report(self, job_id: str, *, max_wait_s: float | None = None) -> str:
        """Waits for the job's end and returns the service's report as an HTML page."""
        return await self._run(self._flows.report(job_id, max_wait_s))

    async def artifacts(self, job_id: str) -> list[Artifact]:
        """The artifacts of the job's result, unavailable ones too; empty until the job has a result."""
        return await self._run(self._flows.artifacts(job_id))

    async def artifact(self, job_id: str, artifact: Artifact) -> str:
        """The artifact's text, which the submission's own build wrote. Raises CallerError for an unavailable one."""
        return await self._run(self._flows.artifact(job_id, artifact))

    async def artifact_bytes(self, job_id: str, artifact: Artifact) -> bytes:
        """The bytes of an artifact: of a text, or of a profiler's report."""
        return await self._run(self._flows.artifact_bytes(job_id, artifact))

    async def events(self, job_id: str) -> AsyncIterator[Event]:
        """Yields the job's events, from its first to its last. It reconnects after a broken connection."""
        stream = EventStream(job_id, self._flows.retry, self.address.url)
        while not stream.over:
            failure: KernelEvalError | NoResponse | None = None
            try:
                connection = self._http.stream("GET", stream.path, headers=stream.headers(), timeout=SILENCE_S)
                async with connection as response:
                    stream.check_response(
                        Response(
                            response.status_code,
                            response.headers,
                            b"" if response.is_success else await response.aread(),
                        )
                    )
                    async for line in response.aiter_lines():
                        if (event := stream.line(line)) is not None:
                            yield event
            except httpx.TransportError as error:
                failure = NoResponse(str(error) or type(error).__name__)
            except KernelEvalError as error:
                failure = error
            if not stream.over:
                await asyncio.sleep(stream.pause(failure))

    async def cancel(self, job_id: str, *, wait_s: float = 0.0) -> Job:
        """Cancels the job. A running job takes a moment to stop: `wait_s` is the maximum time to wait, up to 600 s."""
        return await self._run(self._flows.cancel(job_id, wait_s))

    async def jobs(
        self, *, state: str | None = None, batch_id: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Job]:
        """Yields the stored jobs, newest first, without their results: all of them, or the first `limit`."""
        pages = Pages(state, batch_id, limit)
        while pages.more:
            for job in pages.take(await self._run(self._flows.jobs(pages.params()))):
                yield job

    async def map(
        self,
        submissions: Iterable[SubmissionLike],
        *,
        concurrency: int = CONCURRENCY,
        max_wait_s: float | None = None,
        ordered: bool = False,
    ) -> AsyncIterator[Finished]:
        """Judges every submission, `concurrency` at a time, and yields exactly one `Finished` for each when it is done.

        The order is that of completion, or with `ordered` that of the submissions; `Finished.index` is the position
        among them. It reads `submissions` one by one when there is room, so that a generator may yield thousands.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: nothing would be judged; give 1 or more")
        source, next_index = enumerate(submissions), 0
        running: set[asyncio.Task[Finished]] = set()
        waiting: dict[int, Finished] = {}
        try:
            while True:
                while (
                    len(running) < concurrency
                    and len(waiting) < AHEAD * concurrency
                    and (indexed := next(source, None)) is not None
                ):
                    running.add(asyncio.create_task(self._finished(*indexed, max_wait_s)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                while done:
                    finished = done.pop().result()
                    if ordered:
                        waiting[finished.index] = finished
                    else:
                        yield finished
                while next_index in waiting:
                    yield waiting.pop(next_index)
                    next_index += 1
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def health(self) -> Mapping[str, Any]:
        """The body of /health, also of an unhealthy service. It sends one request and never retries."""
        return await self._run(self._flows.health())

    async def stats(self) -> Mapping[str, Any]:
        """The service's counters."""
        return await self._run(self._flows.get("/stats"))

    async def cleanup_jobs(self, *, older_than_s: float = 300) -> Mapping[str, Any]:
        """Deletes the records of jobs that finished more than `older_than_s` seconds ago."""
        return await self._run(self._flows.post("/admin/cleanup-jobs", older_than=f"{older_than_s:g}"))

    async def document(self) -> Mapping[str, Any]:
        """The service's OpenAPI document."""
        return await self._run(self._flows.get("/openapi.json"))

    async def page(self, path: str) -> str:
        """The text of any page of the service."""
        return await self._run(self._flows.text(path))

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _finished(self, index: int, submitted: SubmissionLike, max_wait_s: float | None) -> Finished:
        try:
            submission = to_submission(submitted)
        except CallerError as error:
            return Finished(index, Submission(submitted), None, error)  # type: ignore[arg-type]
        try:
            return Finished(index, submission, await self.judge(submission, max_wait_s=max_wait_s), None)
        except KernelEvalError as error:
            return Finished(index, submission, None, error)

    async def _run(self, flow: Flow[T]) -> T:
        reply: Response | NoResponse | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await self._take(step)

    async def _take(self, step: Step) -> Response | NoResponse | None:
        if not isinstance(step, Call):
            await asyncio.sleep(step.seconds)
            return None
        try:
            response = await self._http.request(
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
