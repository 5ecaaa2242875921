"""Jobs that go on, seen by an agent: told while they run, cancelled with the call that asked for them, or by name."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="an extra of the client that an offline GPU box lacks")

from mcp import StdioServerParameters
from mcp.client import Client as McpClient
from mcp.client.stdio import stdio_client

from domain.paths import ROOT
from kernel_eval_client import Client
from kernel_eval_client.agents import mcp_server
from tests.client.test_mcp import HANGS, environment, over_http

__all__ = ["over_http"]
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HANGING = {"source_code": HANGS, "timeout": 300, "wait_s": 300}


def over_stdio(url: str) -> Any:
    return stdio_client(
        StdioServerParameters(
            command=sys.executable, args=["-m", "kernel_eval_client", "mcp"], env=environment(url), cwd=str(ROOT)
        )
    )


def give_up(server: Any, mode: str) -> list[str]:
    """Calls, and gives the call up once it has been told that the job runs; what it was told."""
    told: list[str] = []

    async def asked() -> None:
        async with McpClient(server, mode=mode) as client:
            with anyio.CancelScope() as scope:

                async def hear(progress: float, total: float | None, message: str | None) -> None:
                    told.append(message or "")
                    if "running" in told[-1]:
                        scope.cancel()

                await client.call_tool("evaluate", HANGING, progress_callback=hear)
            assert scope.cancelled_caught

    asyncio.run(asked())
    return told


@pytest.mark.parametrize(("transport", "mode"), [("stdio", "legacy"), ("http", "legacy"), ("http", "auto")])
def test_a_call_that_is_given_up_cancels_its_job(
    over_http: str, url: str, client: Client, transport: str, mode: str
) -> None:
    told = give_up(over_stdio(url) if transport == "stdio" else over_http, mode)
    found = ID.search(told[0])
    assert found is not None and all(found[0] in line for line in told)
    assert client.wait_for_job(found[0], max_wait_s=60).state == "cancelled"


def test_to_give_up_waiting_for_a_result_leaves_the_job(url: str, client: Client) -> None:
    async def asked() -> tuple[str, str, str, str]:
        async with McpClient(mcp_server.server(url)) as agent:

            async def text(tool: str, **arguments: Any) -> str:
                return str(getattr((await agent.call_tool(tool, arguments)).content[0], "text", ""))

            handed_in = await text("evaluate", **{**HANGING, "wait_s": 0})
            found = ID.search(handed_in)
            assert found is not None
            job_id = found[0]
            with anyio.CancelScope() as scope:

                async def hear(progress: float, total: float | None, message: str | None) -> None:
                    scope.cancel()

                await agent.call_tool("result", {"job_id": job_id}, progress_callback=hear)
            listed = await text("jobs", limit=5)
            assert not client.job(job_id).done
            return job_id, handed_in, listed, await text("cancel", job_id=job_id)

    job_id, handed_in, listed, cancelled = asyncio.run(asked())
    assert "handed in" in handed_in and handed_in.endswith(
        f'next: result("{job_id}") waits for it, cancel("{job_id}") ends it.'
    )
    assert job_id in listed and len(listed.splitlines()) <= 5
    assert f"job {job_id} is " in cancelled and "cancelled" in cancelled
    assert client.wait_for_job(job_id, max_wait_s=60).state == "cancelled"


def test_the_service_is_told(url: str) -> None:
    async def asked() -> Any:
        async with McpClient(mcp_server.server(url)) as agent:
            return (await agent.call_tool("service", {})).content[0], (await agent.list_tools()).tools

    content, tools = asyncio.run(asked())
    assert "healthy" in content.text and "\ndevice: cpu (no GPU" in content.text and "\njobs: " in content.text
    reads = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
    assert reads == {"result", "status", "jobs", "artifact", "list_examples", "service"}
