"""The tools for agents: each is a method over the client and replies in at most two thousand characters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

from kernel_eval_client.agents import arguments, brief, examples, parts, waiting
from kernel_eval_client.async_client import AsyncClient
from kernel_eval_client.contract import IOContract
from kernel_eval_client.errors import CallerError, KernelEvalError
from kernel_eval_client.flow import Retry, verdict
from kernel_eval_client.job import Job
from kernel_eval_client.kernel import Kernel, KernelType, entry_key, guess_type
from kernel_eval_client.submission import Submission
from kernel_eval_client.untrusted_text import plain

PATIENCE_S = 20.0
CANCEL_S = 10.0
FIGURES = "kernel-eval/figures"
"""The key in a reply's `_meta` with verdict and speed-up for programs. Some hosts would show structured content to a
model in place of the text."""


class Tools:
    """The tools, each a method. `shares_key`: callers without an API key use the one in the environment."""

    def __init__(self, url: str | None, *, shares_key: bool) -> None:
        self._url = url
        self._shares_key = shares_key

    async def evaluate(
        self,
        context: Context[Any, Any],
        source_code: arguments.Source,
        kernel_type: arguments.Type = None,
        io: arguments.Contract = None,
        entry: arguments.Entry = None,
        budget: arguments.Effort = None,
        num_trials: arguments.Trials = None,
        timeout: arguments.Seconds = None,
        artifacts: arguments.Texts = None,
        device_metrics: arguments.Counters = None,
        sanitize: arguments.Sanitize = False,
        draw_on: arguments.DrawOn = "device",
        profile: arguments.Profile = False,
        gpu: arguments.Gpu = None,
        reuse: arguments.Reuse = "never",
        name: arguments.Name = None,
        wait_s: arguments.Wait = arguments.WAIT_S,
    ) -> CallToolResult:
        """Run and time one kernel alone. Says whether it compiles and runs and how fast, not whether it is right."""

        async def ask(client: AsyncClient) -> CallToolResult:
            kernel = _kernel(source_code, kernel_type, io, entry)
            submission = Submission(
                kernel,
                num_trials=num_trials,
                timeout=timeout,
                budget=budget,
                artifacts=artifacts,
                device_metrics=device_metrics,
                sanitize=sanitize or None,
                draw_on=draw_on,
                profile=profile or None,
                gpu=gpu,
                reuse=reuse,
                label=name,
            )
            job = await waiting.submit_and_wait(client, submission, wait_s, _progress_reporter(context))
            return _answer(job, source_code)

        return await self._call(context, ask)

    async def compare(
        self,
        context: Context[Any, Any],
        reference_code: arguments.Source,
        candidate_code: arguments.Source,
        reference_type: arguments.Type = None,
        candidate_type: arguments.Type = None,
        reference_io: arguments.Contract = None,
        candidate_io: arguments.Contract = None,
        candidate_entry: arguments.Entry = None,
        reference_entry: arguments.Entry = None,
        atol: arguments.Absolute = None,
        rtol: arguments.Relative = None,
        strictness: arguments.Strictness = "task",
        budget: arguments.Effort = None,
        num_trials: arguments.Trials = None,
        timeout: arguments.Seconds = None,
        artifacts: arguments.Texts = None,
        device_metrics: arguments.Counters = None,
        sanitize: arguments.Sanitize = False,
        cases: arguments.Cases = None,
        gradients: arguments.Gradients = False,
        determinism: arguments.Determinism = False,
        draw_on: arguments.DrawOn = "device",
        profile: arguments.Profile = False,
        gpu: arguments.Gpu = None,
        reuse: arguments.Reuse = "never",
        name: arguments.Name = None,
        wait_s: arguments.Wait = arguments.WAIT_S,
    ) -> CallToolResult:
        """Is the candidate right, and how much faster than the reference? Both get the same inputs and weights."""

        async def ask(client: AsyncClient) -> CallToolResult:
            submission = Submission(
                _kernel(candidate_code, candidate_type, candidate_io, candidate_entry),
                _kernel(reference_code, reference_type, reference_io, reference_entry),
                num_trials=num_trials,
                timeout=timeout,
                atol=atol,
                rtol=rtol,
                strictness=strictness,
                budget=budget,
                artifacts=artifacts,
                device_metrics=device_metrics,
                sanitize=sanitize or None,
                cases=cases,
                gradients=gradients or None,
                determinism=determinism or None,
                draw_on=draw_on,
                profile=profile or None,
                gpu=gpu,
                reuse=reuse,
                label=name,
            )
            job = await waiting.submit_and_wait(client, submission, wait_s, _progress_reporter(context))
            return _answer(job, candidate_code, reference_code)

        return await self._call(context, ask, compared=True)

    async def status(self, context: Context[Any, Any], job_id: arguments.JobId) -> CallToolResult:
        """A job's state: queued, running, or its verdict."""

        async def ask(client: AsyncClient) -> CallToolResult:
            return _text(brief.of_job(await client.job(job_id)))

        return await self._call(context, ask)

    async def result(
        self,
        context: Context[Any, Any],
        job_id: arguments.JobId,
        part: arguments.Part = None,
        offset: arguments.Offset = 0,
        wait_s: arguments.Wait = arguments.WAIT_S,
    ) -> CallToolResult:
        """Waits for a job's verdict; or one part of the whole answer, such as the full error, read page by page."""

        async def ask(client: AsyncClient) -> CallToolResult:
            if offset and part is None:
                raise CallerError("offset needs a part: name one, such as part=error")
            job = await waiting.wait_for(client, await client.job(job_id), wait_s, _progress_reporter(context))
            if part is None or not job.done:
                return _answer(job)
            return _text(parts.of_part(verdict(job), part, offset))

        return await self._call(context, ask)

    async def cancel(self, context: Context[Any, Any], job_id: arguments.JobId) -> CallToolResult:
        """Ends a job that is queued or runs. One that has ended stays as it is."""

        async def ask(client: AsyncClient) -> CallToolResult:
            return _text(brief.of_job(await client.cancel(job_id, wait_s=CANCEL_S)))

        return await self._call(context, ask)

    async def jobs(self, context: Context[Any, Any], limit: arguments.Count = 10) -> CallToolResult:
        """The newest jobs of this API key: id, state, verdict."""

        async def ask(client: AsyncClient) -> CallToolResult:
            return _text(brief.of_jobs([job async for job in client.jobs(limit=limit)]))

        return await self._call(context, ask)

    async def service(self, context: Context[Any, Any]) -> CallToolResult:
        """Whether the service judges, on which devices, how many jobs wait, its versions."""

        async def ask(client: AsyncClient) -> CallToolResult:
            health = await client.health()
            document = await client.document()
            return _text(brief.of_service(health, str((document.get("info") or {}).get("version"))))

        return await self._call(context, ask)

    async def artifact(
        self,
        context: Context[Any, Any],
        job_id: arguments.JobId,
        name: arguments.Text = None,
        side: Literal["candidate", "reference"] = "candidate",
        offset: arguments.Offset = 0,
    ) -> CallToolResult:
        """A kernel's code as text (PTX, SASS, Triton's stages), page by page, where `artifacts` asked for it."""

        async def ask(client: AsyncClient) -> CallToolResult:
            artifacts = await client.artifacts(job_id)
            artifact = next((listed for listed in artifacts if (listed.side, listed.name) == (side, name)), None)
            if artifact is None or name is None:
                return _text(parts.page(parts.of_artifacts(artifacts), offset))
            if not artifact.is_text:
                return _text(
                    f"{artifact.name} is no text but a file of Nsight Compute; part=device_metrics has its figures"
                )
            text = await client.artifact(job_id, artifact)
            return _text(parts.marked_page(text, offset, f"{artifact.format} made of the {side}"))

        return await self._call(context, ask)

    async def list_examples(
        self, name: arguments.Problem = None, candidate: arguments.Label = None, offset: arguments.Offset = 0
    ) -> CallToolResult:
        """Forty problems by name; with a name its reference, with a candidate (`triton`, `cuda`) that solution."""
        try:
            return _text(parts.page(examples.describe(name, candidate), offset))
        except CallerError as error:
            raise ToolError(brief.of_error(error)) from error

    async def _call(
        self,
        context: Context[Any, Any],
        ask: Callable[[AsyncClient], Awaitable[CallToolResult]],
        *,
        compared: bool = False,
    ) -> CallToolResult:
        sent = (context.headers or {}).get("authorization", "")
        token = sent.removeprefix("Bearer ") if sent.startswith("Bearer ") else ""
        key = token or (None if self._shares_key else "")
        try:
            async with AsyncClient(self._url, key, retry=Retry(patience_s=PATIENCE_S)) as client:
                return await ask(client)
        except KernelEvalError as error:
            raise ToolError(brief.of_error(error, compared=compared)) from error


def _answer(job: Job, source: str = "", reference: str = "") -> CallToolResult:
    if not job.done:
        return _text(brief.of_job(job))
    result = verdict(job)
    figures: dict[str, Any] = {"job_id": result.job_id, "verdict": result.verdict}
    if result.speedup is not None and result.fixed_outputs_pass is None:
        figures |= {"ratio": result.speedup.ratio, "ci_low": result.speedup.ci_low, "ci_high": result.speedup.ci_high}
    if result.headroom.ratio is not None:
        figures["headroom"] = result.headroom.ratio
    return _text(brief.of_job(job, source, reference), {FIGURES: figures})


def _text(text: str, meta: dict[str, Any] | None = None) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], _meta=meta)


def _progress_reporter(context: Context[Any, Any]) -> waiting.ProgressReporter:
    async def report(seconds: float, state: str) -> None:
        await context.report_progress(seconds, message=plain(state))

    return report


def _kernel(source: str, kernel_type: str | None, io: dict[str, Any] | None, entry: str | None) -> Kernel:
    kind = KernelType(kernel_type) if kernel_type else guess_type(source)
    try:
        contract = None if io is None else IOContract.from_dict(io)
    except (TypeError, ValueError, AttributeError) as error:
        raise CallerError(f"io is no contract: {error}; list_examples has some that fit") from error
    return Kernel(source, kind, contract, {entry_key(kind, source, entry): entry} if entry else None)
