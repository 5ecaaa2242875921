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
CONCURRENCY = 32
AHEAD = 4
"""With `ordered`, so many times `concurrency` may be done before one that is still waited for."""
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=64)


@dataclass(frozen=True)
class Finished:
    """One of many: the submission, its place in the order they came, and a result or the error in its stead.

    What was given and is no submission has an error; it is `submission.kernel` then.
    """

    index: int
    submission: Submission
    result: Result | None
    error: KernelEvalError | None


class AsyncClient:
    """Asks one service. See `Client`: the same methods, to be awaited; `map` and `jobs` are asynchronous iterators."""

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
        """The verdict about one kernel."""
        return await self.judge(Submission(kernel, **options), max_wait_s=max_wait_s)

    async def compare(
        self,
        reference: KernelLike,
        candidate: KernelLike,
        *,
        max_wait_s: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """The verdict about a kernel against a reference."""
        return await self.judge(Submission(candidate, reference, **options), max_wait_s=max_wait_s)

    async def judge(self, submission: SubmissionLike, *, max_wait_s: float | None = None) -> Result:
        """The verdict about a submission."""
        return await self._run(self._flows.judge(submission_of(submission), max_wait_s))

    async def submit(self, submission: SubmissionLike) -> Job:
        """Hands in and does not wait."""
        return await self._run(self._flows.submit(submission_of(submission)))

    async def job(self, job_id: str) -> Job:
        """The job as it is now."""
        return await self._run(self._flows.job(job_id))

    async def wait(self, job_id: str, *, max_wait_s: float | None = None) -> Result:
        """The job's result, once there is one."""
        return await self._run(self._flows.wait(job_id, max_wait_s))

    async def settled(self, job_id: str, *, max_wait_s: float | None = None) -> Job:
        """The job once it has ended, however it did."""
        return await self._run(self._flows.settled(job_id, max_wait_s))

    async def report(self, job_id: str, *, max_wait_s: float | None = None) -> str:
        """The service's report of a job as an HTML page, once it has ended."""
        return await self._run(self._flows.report(job_id, max_wait_s))

    async def artifacts(self, job_id: str) -> list[Artifact]:
        """What is kept beside the job's result, and what cannot be had of what was asked for; empty before it has."""
        return await self._run(self._flows.artifacts(job_id))

    async def artifact(self, job_id: str, artifact: Artifact) -> str:
        """Its text. It comes out of the submission's own build; raises CallerError where there is none."""
        return await self._run(self._flows.artifact(job_id, artifact))

    async def artifact_bytes(self, job_id: str, artifact: Artifact) -> bytes:
        """Its bytes: also of a profiler's report, which is no text."""
        return await self._run(self._flows.artifact_bytes(job_id, artifact))

    async def events(self, job_id: str) -> AsyncIterator[Event]:
        """What happens to the job as it happens, from its beginning to its end, through connections that break."""
        following = Following(job_id, self._flows.retry, self.address.url)
        while not following.over:
            gone: KernelEvalError | NoAnswer | None = None
            try:
                connection = self._http.stream("GET", following.path, headers=following.headers(), timeout=SILENCE_S)
                async with connection as answer:
                    following.opened(
                        Answer(answer.status_code, answer.headers, b"" if answer.is_success else await answer.aread())
                    )
                    async for line in answer.aiter_lines():
                        if (event := following.line(line)) is not None:
                            yield event
            except httpx.TransportError as error:
                gone = NoAnswer(str(error) or type(error).__name__)
            except KernelEvalError as error:
                gone = error
            if not following.over:
                await asyncio.sleep(following.pause(gone))

    async def cancel(self, job_id: str, *, wait_s: float = 0.0) -> Job:
        """Cancels; a running job takes a moment, which `wait_s` (at most 600) waits for."""
        return await self._run(self._flows.cancel(job_id, wait_s))

    async def jobs(
        self, *, state: str | None = None, batch_id: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Job]:
        """The jobs that are kept, newest first, without their results; all of them, or the first `limit`."""
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
        """Judges them all, so many at a time, and gives each back when it is done: exactly one `Finished` for each.

        In the order in which they are done, or with `ordered` in which they came; `Finished.index` tells that. They are
        taken one by one when there is room, so that a generator may make thousands.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: nothing would be judged; give 1 or more")
        source, due = enumerate(submissions), 0
        running: set[asyncio.Task[Finished]] = set()
        early: dict[int, Finished] = {}
        try:
            while True:
                while (
                    len(running) < concurrency
                    and len(early) < AHEAD * concurrency
                    and (taken := next(source, None)) is not None
                ):
                    running.add(asyncio.create_task(self._finished(*taken, max_wait_s)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                while done:
                    finished = done.pop().result()
                    if ordered:
                        early[finished.index] = finished
                    else:
                        yield finished
                while due in early:
                    yield early.pop(due)
                    due += 1
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def health(self) -> Mapping[str, Any]:
        """The body of /health, also of a service that is not healthy. Asked once, without trying again."""
        return await self._run(self._flows.health())

    async def stats(self) -> Mapping[str, Any]:
        """The service's counters."""
        return await self._run(self._flows.get("/stats"))

    async def cleanup_jobs(self, *, older_than_s: float = 300) -> Mapping[str, Any]:
        """Has finished jobs forgotten."""
        return await self._run(self._flows.post("/admin/cleanup-jobs", older_than=f"{older_than_s:g}"))

    async def document(self) -> Mapping[str, Any]:
        """The service's OpenAPI document."""
        return await self._run(self._flows.get("/openapi.json"))

    async def page(self, path: str) -> str:
        """The text of any page of the service."""
        return await self._run(self._flows.text(path))

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _finished(self, index: int, given: SubmissionLike, max_wait_s: float | None) -> Finished:
        try:
            submission = submission_of(given)
        except CallerError as error:
            return Finished(index, Submission(given), None, error)  # type: ignore[arg-type]
        try:
            return Finished(index, submission, await self.judge(submission, max_wait_s=max_wait_s), None)
        except KernelEvalError as error:
            return Finished(index, submission, None, error)

    async def _run(self, flow: Flow[T]) -> T:
        reply: Answer | NoAnswer | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = await self._take(step)

    async def _take(self, step: Step) -> Answer | NoAnswer | None:
        if not isinstance(step, Call):
            await asyncio.sleep(step.seconds)
            return None
        try:
            answer = await self._http.request(
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
