"""The MCP server: six tools over the client, answered in at most two thousand characters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from kernel_eval_client.address import Address
from kernel_eval_client.agents import brief, examples
from kernel_eval_client.async_client import AsyncClient
from kernel_eval_client.contract import IOContract
from kernel_eval_client.errors import CallerError, KernelEvalError, StillRunning
from kernel_eval_client.flow import Retry
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.submission import Submission

NAME = "kernel-eval"
PATIENCE_S = 20.0
WAIT_S = 120.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
INSTRUCTIONS = """Judges GPU kernels. Write a kernel, then:
1. compare(reference_code, candidate_code): is it right, and how much faster with a 95 % interval. The reference is
   PyTorch with `class Model`, `get_inputs()` and `get_init_inputs()`; the candidate a `class ModelNew` with the same
   constructor, which may launch Triton kernels or inline CUDA. Raw CUDA and bare Triton kernels need an IO contract.
2. Read `next:` at the end of an answer. Only a speed-up whose whole interval is above 1 counts as faster.
3. evaluate(source_code) runs and times one kernel alone. list_examples() has forty problems with solutions."""

Source = Annotated[str, Field(description="The whole source, at most 1 MiB.")]
Type = Annotated[
    Literal["torch", "torch_cuda", "triton", "cuda", "multi_kernel"] | None, Field(description="Default: guessed.")
]
Contract = Annotated[
    dict[str, Any] | None,
    Field(description='{"args": [{"name", "type", "value" or "tensor_spec", "role"}], "launch": {"grid", "block"}}'),
]
Entry = Annotated[str | None, Field(description="The kernel, function or entry point to call, where it is not plain.")]
Effort = Annotated[
    Literal["quick", "default", "precise"] | None,
    Field(description="How much of the device to spend; quick leaves checks out, so confirm what it passes."),
]
Trials = Annotated[int | None, Field(ge=1, le=10000, description="Rounds of timing at most (100).")]
Seconds = Annotated[int | None, Field(ge=5, le=600, description="Seconds of building, and of running (120).")]
Wait = Annotated[float, Field(ge=0, le=600, description="Seconds to wait; after that the answer is the job's id.")]
JobId = Annotated[str, Field(description="As an earlier answer named it.")]
Texts = Annotated[
    list[Literal["ptx", "sass", "ttir", "ttgir", "llir"]] | None,
    Field(description="Also keep the kernel's code in these forms; the tool `artifact` reads them."),
]
Offset = Annotated[int, Field(ge=0, description="Where to read on in a long answer.")]
Part = Literal[
    "error", "timing", "comparison", "inputs", "build", "launches", "artifacts", "output", "speedup", "environment"
]


class Tools:
    """The tools, each a method. `lends`: callers without an API key of their own ask under the environment's."""

    def __init__(self, url: str | None, *, lends: bool) -> None:
        self._url = url
        self._lends = lends

    async def evaluate(
        self,
        context: Context[Any, Any],
        source_code: Source,
        kernel_type: Type = None,
        io: Contract = None,
        entry: Entry = None,
        budget: Effort = None,
        num_trials: Trials = None,
        timeout: Seconds = None,
        artifacts: Texts = None,
        wait_s: Wait = WAIT_S,
    ) -> str:
        """Run and time one kernel alone. Says whether it compiles and runs and how fast, not whether it is right."""

        async def ask(client: AsyncClient) -> str:
            kernel = _kernel(source_code, kernel_type, io, entry)
            submission = Submission(kernel, num_trials=num_trials, timeout=timeout, budget=budget, artifacts=artifacts)
            return brief.of_result(await client.judge(submission, max_wait_s=wait_s), source_code)

        return await self._asked(context, ask)

    async def compare(
        self,
        context: Context[Any, Any],
        reference_code: Source,
        candidate_code: Source,
        reference_type: Type = None,
        candidate_type: Type = None,
        reference_io: Contract = None,
        candidate_io: Contract = None,
        candidate_entry: Entry = None,
        atol: float | None = None,
        rtol: float | None = None,
        budget: Effort = None,
        num_trials: Trials = None,
        timeout: Seconds = None,
        artifacts: Texts = None,
        wait_s: Wait = WAIT_S,
    ) -> str:
        """Is the candidate right, and how much faster than the reference? Both get the same fresh inputs."""

        async def ask(client: AsyncClient) -> str:
            submission = Submission(
                _kernel(candidate_code, candidate_type, candidate_io, candidate_entry),
                _kernel(reference_code, reference_type, reference_io, None),
                num_trials=num_trials,
                timeout=timeout,
                atol=atol,
                rtol=rtol,
                budget=budget,
                artifacts=artifacts,
            )
            return brief.of_result(await client.judge(submission, max_wait_s=wait_s), candidate_code)

        return await self._asked(context, ask)

    async def status(self, context: Context[Any, Any], job_id: JobId) -> str:
        """Where a job stands: queued, running, or its verdict."""

        async def ask(client: AsyncClient) -> str:
            return brief.of_job(await client.job(job_id))

        return await self._asked(context, ask)

    async def result(
        self,
        context: Context[Any, Any],
        job_id: JobId,
        part: Part | None = None,
        offset: Offset = 0,
        wait_s: Wait = WAIT_S,
    ) -> str:
        """A job's verdict; or one part of the whole answer, such as the full error, read page by page."""

        async def ask(client: AsyncClient) -> str:
            found = await client.wait(job_id, max_wait_s=wait_s)
            return brief.of_result(found) if part is None else brief.of_part(found, part, offset)

        return await self._asked(context, ask)

    async def artifact(
        self,
        context: Context[Any, Any],
        job_id: JobId,
        name: Annotated[str | None, Field(description="As the list names it; without, the list.")] = None,
        side: Literal["candidate", "reference"] = "candidate",
        offset: Offset = 0,
    ) -> str:
        """A kernel's code as text (PTX, SASS, Triton's stages), page by page, where `artifacts` asked for it."""

        async def ask(client: AsyncClient) -> str:
            found = await client.artifacts(job_id)
            one = next((each for each in found if (each.side, each.name) == (side, name)), None)
            if one is None or name is None:
                return brief.page(brief.of_artifacts(found), offset)
            return brief.page(await client.artifact(job_id, one), offset)

        return await self._asked(context, ask)

    async def list_examples(self, name: str | None = None, candidate: str | None = None, offset: Offset = 0) -> str:
        """Forty problems by name; with a name its reference, with a candidate (`triton`, `cuda`) that solution."""
        try:
            return brief.page(examples.shown(name, candidate), offset)
        except CallerError as error:
            raise ToolError(brief.of_error(error)) from error

    async def _asked(self, context: Context[Any, Any], ask: Callable[[AsyncClient], Awaitable[str]]) -> str:
        given = (context.headers or {}).get("authorization", "")
        own = given.removeprefix("Bearer ") if given.startswith("Bearer ") else ""
        key = own or (None if self._lends else "")
        try:
            async with AsyncClient(self._url, key, retry=Retry(patience_s=PATIENCE_S)) as client:
                return await ask(client)
        except StillRunning as error:
            return f"job {error.job_id} is {error.state} and goes on\nnext: status(job_id) in a while, then result."
        except KernelEvalError as error:
            raise ToolError(brief.of_error(error)) from error


def server(url: str | None = None, *, host: str | None = None) -> MCPServer[Any]:
    """The server for the service at that address (default: `KERNEL_EVAL_URL`).

    Over HTTP a caller's own `Authorization` goes on to the service. The key of this process's environment stands in for
    none only over stdio or where `host` is a loopback address: else everybody who reaches the port would ask under it.
    """
    tools = Tools(url, lends=host is None or host in LOOPBACK)
    made: MCPServer[Any] = MCPServer(NAME, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in (tools.evaluate, tools.compare, tools.status, tools.result, tools.artifact, tools.list_examples):
        made.add_tool(tool, structured_output=False)
    return made


def run(url: str | None, *, http: bool, host: str, port: int) -> None:
    """Serves until its input ends, or over HTTP until it is stopped. Raises CallerError for what is no URL."""
    Address.find(url)
    if http:
        server(url, host=host).run("streamable-http", host=host, port=port, stateless_http=True)
    else:
        server(url).run("stdio")


def _kernel(source: str, kernel_type: str | None, io: dict[str, Any] | None, entry: str | None) -> Kernel:
    kind = KernelType(kernel_type) if kernel_type else guess_type(source)
    names = {KernelType.CUDA: "kernel_name", KernelType.TRITON: "kernel_name", KernelType.MULTI_KERNEL: "entry_point"}
    try:
        contract = None if io is None else IOContract.from_dict(io)
    except (TypeError, ValueError, AttributeError) as error:
        raise CallerError(f"io is no contract: {error}") from error
    return Kernel(source, kind, contract, {names.get(kind, "function_name"): entry} if entry else None)
