"""The MCP server, asked by the real MCP client library: over both transports, about a real service."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="an extra of the client that an offline GPU box lacks")

from mcp import StdioServerParameters
from mcp.client import Client as McpClient
from mcp.client.stdio import stdio_client

from domain.paths import ROOT
from kernel_eval_client import Result, errors
from kernel_eval_client.agents import brief, mcp_server, tools
from tests.client.failing import Reply, Told, listening
from tests.client.suite_files import NEW, TWICE
from tests.conftest import die_with_parent, free_port
from tests.stack.serving import wait_for

HANGS = "def kernel_fn(x):\n    while True:\n        pass\n\ndef get_inputs():\n    return [1]\n"


def environment(url: str) -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}/client", "KERNEL_EVAL_URL": url, "PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def over_http(url: str) -> Iterator[str]:
    """`kernel-eval mcp --http` in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "kernel_eval_client", "mcp", "--http", "--port", str(port)]
    process = subprocess.Popen(command, env=environment(url), stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def answers() -> bool:
        assert process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(answers, 60, "the MCP server listens")
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait(timeout=20)


def call(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[tuple[bool, str]]:
    """Each call's answer and whether it is an error, over one connection."""

    async def asked() -> list[tuple[bool, str]]:
        found = []
        async with McpClient(server) as client:
            for tool, arguments in calls:
                answer = await client.call_tool(tool, arguments)
                (content,) = answer.content
                found.append((bool(answer.is_error), str(getattr(content, "text", ""))))
        return found

    return asyncio.run(asked())


TOOLS = {"evaluate", "compare", "status", "result", "cancel", "jobs", "artifact", "list_examples", "service"}
QUICK = {"num_trials": 6}
RIGHT = ("compare", {"reference_code": TWICE, "candidate_code": NEW, **QUICK})
WRONG = ("compare", {"reference_code": TWICE, "candidate_code": NEW.replace("x + x", "x * 3"), **QUICK})
BROKEN = ("evaluate", {"source_code": "def kernel_fn(x:\n    return x\n"})


def check_a_session(server: Any) -> None:
    """What an agent does: looks at an example, sends something broken, wrong, then right."""
    answers = call(server, ("list_examples", {}), BROKEN, WRONG, RIGHT)
    assert all(len(text) <= brief.MAXIMUM_LENGTH for _, text in answers) and not any(failed for failed, _ in answers)
    listed, broken, wrong, right = (text for _, text in answers)
    assert "level1/softmax: cuda,torch,triton" in listed
    assert broken.startswith("compile_error") and "\nline 1:\n" in broken and "\n| >    1 | def kernel_fn(x:" in broken
    assert wrong.startswith("wrong_result") and "\nwrong: " in wrong and "\nwhere: output 0" in wrong
    assert wrong.count("atol") == 1 and "\nnext: Check the formula, the axis" in wrong
    assert right.startswith("passed (job ") and "\nnext: " in right and "time: " in right


def test_a_session_over_http(over_http: str) -> None:
    check_a_session(over_http)


def test_a_session_over_stdio(url: str) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "kernel_eval_client", "mcp"], env=environment(url), cwd=str(ROOT)
    )
    (_, listed), (failed, broken) = call(stdio_client(parameters), ("list_examples", {}), BROKEN)
    assert "level1/softmax" in listed and not failed and broken.startswith("compile_error")


def test_a_kernel_is_judged_for_several_sizes(over_http: str) -> None:
    reference = """import torch

def kernel_fn(x):
    return 2 * x

def get_inputs(n=64):
    return [torch.randn(n)]
"""
    only_even = reference.replace("return 2 * x", "return 2 * x if len(x) % 2 == 0 else 3 * x")
    cases = [{"name": "even", "arguments": {"n": 32}}, {"name": "odd", "arguments": {"n": 33}}]
    arguments = {"reference_code": reference, "candidate_code": only_even, "cases": cases, "budget": "quick"}
    (failed, told), (also_failed, gradients) = call(
        over_http,
        ("compare", arguments),
        ("compare", {**arguments, "candidate_code": reference + "# the same", "gradients": True}),
    )
    assert not failed and told.startswith("wrong_result") and "\ncase odd: wrong_result, " in told
    assert not also_failed and gradients.startswith("passed") and "2 of 2 cases" in gradients


def test_the_tools_are_described(over_http: str) -> None:
    async def asked() -> Any:
        async with McpClient(over_http) as client:
            return (await client.list_tools()).tools, client.instructions

    listed, instructions = asyncio.run(asked())
    assert {tool.name for tool in listed} == TOOLS
    assert all(tool.description for tool in listed) and "compare(reference_code" in (instructions or "")
    (evaluate,) = [tool for tool in listed if tool.name == "evaluate"]
    assert set(evaluate.input_schema["required"]) == {"source_code"}
    assert len(json.dumps([tool.model_dump(mode="json") for tool in listed])) < 14_800  # A model reads all of it.


def test_a_job_that_is_not_waited_for(over_http: str, url: str) -> None:
    evaluate = ("evaluate", {"source_code": HANGS, "timeout": 60, "wait_s": 0})
    ((failed, told),) = call(over_http, evaluate)
    assert not failed and "goes on" in told
    job_id = told.split()[1]
    ((_, status),) = call(over_http, ("status", {"job_id": job_id}))
    assert job_id in status and f'next: result("{job_id}") waits' in status
    assert httpx.delete(f"{url}/job/{job_id}", params={"wait": 30}, timeout=40).is_success
    (_, cancelled), (failed, result) = call(over_http, ("status", {"job_id": job_id}), ("result", {"job_id": job_id}))
    assert "is cancelled" in cancelled and failed and "cancelled" in result


def test_a_long_answer_is_read_page_by_page(over_http: str) -> None:
    source = "import sys\n\ndef kernel_fn(x):\n    raise ValueError('a' * 6000)\n\ndef get_inputs():\n    return [1]\n"
    ((_, told),) = call(over_http, ("evaluate", {"source_code": source}))
    assert told.startswith("runtime_error") and len(told) <= brief.MAXIMUM_LENGTH
    job_id, whole, offset = told.split()[2].rstrip(","), "", 0
    for _ in range(6):
        ((_, page),) = call(over_http, ("result", {"job_id": job_id, "part": "error", "offset": offset}))
        text, more, place = page.rpartition("\n… ")
        head, _, marked = (text if more else page).partition("\n")
        assert "not the service's words" in head and all(line.startswith("| ") for line in marked.splitlines())
        whole += marked.removeprefix("| ")
        if not more:
            break
        offset = int(place.rpartition("=")[2])
    assert "a" * 1900 in whole and "a" * 2100 not in told


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("status", {"job_id": "nosuch"}, "this is no job's id"),
        ("cancel", {"job_id": "8d0c075f-6406-5a6a-8ef5-6cbee32f5922/../../stats"}, "this is no job's id"),
        ("status", {"job_id": "8d0c075f-6406-5a6a-8ef5-6cbee32f5922"}, "Check the id"),
        ("result", {"job_id": "8d0c075f-6406-5a6a-8ef5-6cbee32f5922", "offset": 7}, "name one, such as part=error"),
        ("compare", {"reference_code": "x", "candidate_code": "x", "tolerance": 1}, "it has reference_code, candidate"),
        ("compare", {"reference": "x", "candidate": "x"}, "for reference use reference_code; for candidate use candid"),
        ("compare", {"reference_code": "x", "candidate_code": "```python\nx\n```"}, "the ``` of markdown"),
        (
            "compare",
            {"reference_code": "x", "candidate_code": "x", "candidate_type": "cuda"},
            "candidate_io: is missing",
        ),
        ("list_examples", {"candidate": "nosuch"}, "there are cuda, torch"),
        ("evaluate", {"source_code": "x", "kernel_type": "CUDA"}, "io: is missing"),
        ("evaluate", {"source_code": "x", "io": {"args": 7}}, "io is no contract"),
        ("list_examples", {"name": "nosuch"}, "no example 'nosuch'"),
        ("list_examples", {"name": "softmax", "candidate": "nosuch"}, "it has cuda, torch, triton"),
        ("evaluate", {"source_code": "x", "num_trials": 0}, "num_trials: must be greater than or equal to 1"),
        ("evaluate", {"source_code": "x", "num_trials": "ten"}, "num_trials: must be a whole number"),
        ("evaluate", {"source_code": ["x"]}, "source_code: must be a string"),
        ("evaluate", {}, "source_code: is missing"),
        ("compare", {"ref_kernel": "x", "custom_kernel": "x"}, "for ref_kernel use reference_code; for custom_kernel"),
        (
            "evaluate",
            {"source_code": TWICE, "io": {"args": [{"name": "x", "type": "tensor", "tensor_spec": {"shape": "4, 4"}}]}},
            "io.args.0.tensor_spec.shape: must be an array",
        ),
    ],
)
def test_a_call_at_fault_says_so(over_http: str, tool: str, arguments: dict[str, Any], message: str) -> None:
    ((failed, told),) = call(over_http, (tool, arguments))
    assert failed and message in told


def test_examples_show_reference_solution_and_contract() -> None:
    server = mcp_server.server("http://127.0.0.1:1")
    (_, reference), (_, solution) = call(
        server, ("list_examples", {"name": "softmax"}), ("list_examples", {"name": "max_pool", "candidate": "cuda"})
    )
    assert "class Model" in reference and "# solutions: cuda, torch, triton" in reference
    assert "__global__ void max_pool" in solution and '"planes"' not in solution and '"args"' in solution


def test_a_service_that_is_away_is_an_error_and_not_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "PATIENCE_S", 0.0)
    server = mcp_server.server(f"http://127.0.0.1:{free_port()}")
    ((failed, told),) = call(server, BROKEN)
    assert failed and "next: Check the URL" in told


@pytest.mark.parametrize(
    ("host", "sent", "shown"),
    [
        (None, None, "Bearer ours"),
        ("127.0.0.1", "Bearer theirs", "Bearer theirs"),
        ("0.0.0.0", None, None),
        ("0.0.0.0", "Bearer theirs", "Bearer theirs"),
    ],
)
def test_our_key_is_lent_to_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, host: str | None, sent: str | None, shown: str | None
) -> None:
    class Asked:
        headers: dict[str, str] | None = {"authorization": sent} if sent else None

    told = Told(Reply(404, {"type": "urn:kernel-eval:problem:unknown-job", "status": 404, "detail": "no such job"}))
    with listening(told):
        monkeypatch.setenv("KERNEL_EVAL_URL", told.url)
        monkeypatch.setenv("KERNEL_EVAL_API_KEY", "ours")
        asked = tools.Tools(None, shares_key=host is None or host in mcp_server.LOOPBACK)
        with pytest.raises(Exception, match="Check the id"):
            asyncio.run(asked.status(Asked(), "j"))  # type: ignore[arg-type]
    assert [each.headers.get("Authorization") for each in told.seen] == [shown]


def test_an_answer_is_short_whatever_the_service_says() -> None:
    kernel = {"status": "compile_error", "compiled": False, "correctness": False}
    kernel["compilation_error"] = "\n".join(f"kernel.cu({n}): error: {'x' * 900}" for n in range(1, 60))  # type: ignore[assignment]
    kernel["timing"] = {
        "method": "m",
        "latency_ms": 1.0,
        "flags": [{"code": "c", "message": "f" * 3000, "data": {}}] * 9,
    }  # type: ignore[assignment]
    found = Result.from_dict({"job_id": "j", "verdict": "compile_error", "kernel_exec_result": kernel})
    told = brief.of_result(found, "\n".join("y" * 500 for _ in range(80)))
    assert (
        len(told) <= brief.MAXIMUM_LENGTH
        and told.splitlines()[-1] == f"next: {brief.UNKNOWN_STEP}"
        and told.count("flag: ") == 4
    )


def test_every_error_has_a_next_step() -> None:
    for error in (errors.KeyRefused("k"), errors.RateLimited("r"), errors.JobFailed("f"), errors.JobCancelled("c")):
        assert f"\nnext: {error.usual_step}" in brief.of_error(error)
    told = errors.CallerError("no", problem={"next": "Correct `ref_kernel.io`, and send the request again."})
    assert brief.of_error(told, compared=True).endswith("\nnext: Correct `reference_io`, and send the request again.")


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['mcp'] = None; from kernel_eval_client.cli.main import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment("http://127.0.0.1:1"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2 and "kernel-eval-client[cli,mcp]" in done.stderr


def test_programs_read_the_figures_beside_the_text(url: str) -> None:
    async def asked() -> Any:
        async with McpClient(mcp_server.server(url)) as client:
            return await client.call_tool(*BROKEN), client.server_info

    answer, about = asyncio.run(asked())
    figures = answer.meta[tools.FIGURES]
    assert figures["verdict"] == "compile_error" and figures["job_id"] in answer.content[0].text
    assert answer.structured_content is None and about.version


def test_programs_read_no_speed_up_where_fixed_outputs_would_pass(url: str) -> None:
    constant = {"reference_code": TWICE.replace("x * 2", "x * 0"), "candidate_code": NEW.replace("x + x", "x * 0")}

    async def asked() -> Any:
        async with McpClient(mcp_server.server(url)) as client:
            return await client.call_tool("compare", {**constant, **QUICK})

    answer = asyncio.run(asked())
    assert set(answer.meta[tools.FIGURES]) == {"job_id", "verdict"}
    assert "here outputs fixed beforehand are right too" in answer.content[0].text


def test_an_agent_names_its_jobs_and_chooses_where_they_run(over_http: str) -> None:
    chosen = {"name": "doubling", "gpu": "cpu", "profile": True, "reuse": "allow"}
    entry = {"reference_code": TWO, "reference_entry": "twice", "candidate_code": TWO, "candidate_entry": "twice"}
    (_, alone), (_, compared), (_, listed) = call(
        over_http,
        ("evaluate", {"source_code": TWICE, **QUICK, **chosen}),
        ("compare", {**entry, **QUICK, "gpu": "cpu"}),
        ("jobs", {"limit": 2}),
    )
    assert alone.startswith("passed") and compared.startswith("passed")
    assert listed.splitlines()[1].endswith(' "doubling"')


TWO = """
import torch

def other(x):
    return x

def twice(x):
    return x * 2

def get_inputs():
    return [torch.randn(64)]
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"source_code": TWICE, "timout": 9}, "for timout use timeout"),
        ({"code": TWICE}, "for code use source_code"),
        ({"source_code": TWICE, "entry_point": "f"}, "for entry_point use entry"),
        ({"source_code": TWICE, "timeout": 9000}, "next: Correct timeout, and call evaluate again."),
    ],
)
def test_a_wrong_call_says_what_to_correct(over_http: str, arguments: dict[str, Any], told: str) -> None:
    ((failed, text),) = call(over_http, ("evaluate", arguments))
    assert failed and told in text.splitlines()[-1]
