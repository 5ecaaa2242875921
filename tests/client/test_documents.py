"""What the documents about the client print: the Python is run, the commands are parsed, the requests are sent."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests

from domain.paths import ROOT
from kernel_eval_client.cli.exits import MEANINGS
from kernel_eval_client.cli.main import main, parser
from tests.client.test_mcp import BROKEN, call
from tests.docs.blocks import named

DOCS = ROOT / "docs"
GUIDE = DOCS / "client.md"
NAMES = (
    "client",
    "suites",
    "mcp",
    "rewards",
    "train-a-model",
    "DEVICE_METRICS_GUIDE",
    "USER_MANUAL",
    "migration",
    "api",
)
DOCUMENTS = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in NAMES)]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [block for kind, block in _BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


EVERY_TIME = (("README", 0), ("client", 0))
PROGRAMS = [
    # The first of two documents in every run, the others in the long one.
    pytest.param(block, id=f"{path.stem}-{number}", marks=[] if (path.stem, number) in EVERY_TIME else pytest.mark.slow)
    for path in DOCUMENTS
    for number, block in enumerate(blocks(path, "python"))
    if "kernel_eval" in block or "requests.post" in block
]
COMMANDS = [
    line.partition("#")[0].strip()
    for path in DOCUMENTS
    for block in blocks(path, "bash")
    for line in block.splitlines()
    if line.startswith("kernel-eval ")
]


def test_the_documents_print_both() -> None:
    assert len(PROGRAMS) >= 14 and len(COMMANDS) >= 24


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_printed_program_runs(program: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_EVAL_URL", url)
    exec(
        compile(program.replace("http://localhost:8000", url), str(GUIDE), "exec"),
        {"__name__": "printed", "requests": requests},
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_is_one(command: str) -> None:
    parser().parse_args(shlex.split(command)[1:])


def of_the_readme() -> list[list[str]]:
    """The printed commands that judge something."""
    lines = [line for block in blocks(ROOT / "README.md", "bash") for line in block.splitlines()]
    printed = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("kernel-eval ")]
    judging = [words for words in printed if words[0] in ("evaluate", "compare")]
    return [[str(ROOT / word) if word.endswith(".py") else word for word in words] for words in judging]


def test_the_commands_of_the_readme_judge_what_is_there(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = of_the_readme()
    assert len(commands) == 2
    for command in commands:
        assert main([*command, "--url", url]) == 0, capsys.readouterr().out


def test_the_exit_statuses_are_documented() -> None:
    printed = dict(re.findall(r"^\| (\d+) \| (.*) \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert printed == {str(int(status)): meaning for status, meaning in MEANINGS.items()}


def test_every_command_is_in_the_guide() -> None:
    printed = [
        line for block in blocks(GUIDE, "bash") for line in block.splitlines() if line.startswith("kernel-eval ")
    ]
    commands = {shlex.split(command)[1] for command in printed}
    assert set(re.findall(r"^    (\w+)(?: +[A-Z]|$)", parser().format_help(), re.MULTILINE)) == commands


needs_tools = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is not there")


def answered(printed: list[str], url: str) -> list[str]:
    """What each block prints, all in one shell, as one variable is used in a later one."""
    marked = "\necho; echo NEXT\n".join(printed).replace("http://localhost:8000", url)
    done = subprocess.run(["bash", "-euc", marked], capture_output=True, text=True, timeout=240, cwd=ROOT)
    answers = [part.strip() for part in done.stdout.split("NEXT")]
    assert len(answers) == len(printed), done.stderr
    return answers


def names(value: Any) -> set[str]:
    """Of all fields in it, however deep."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set(value if isinstance(value, dict) else ()).union(*map(names, inside))


@pytest.mark.slow
@needs_tools
def test_the_printed_requests_are_answered(url: str) -> None:
    answers = answered(blocks(DOCS / "API_GUIDE.md", "bash"), url)
    *answers, batch, cancelled, refused = answers
    health, evaluated, compared, from_file, triton, from_folder, job = map(json.loads, answers)
    assert triton["verdict"] == "passed" and triton["error"] is None and isinstance(triton["flags"], list)
    assert triton["latency_ms"] > 0 and triton["explanation"].startswith("It compiles, and its outputs are right")
    assert triton["report"].endswith("/report")
    assert health["status"] == "healthy"
    assert evaluated["verdict"] == compared["verdict"] == from_file["verdict"] == "passed"
    assert names(json.loads(named("api", "wrong_result").text)) - names(from_folder) == {"…"}
    assert from_folder["verdict"] == "wrong_result" and from_folder["explanation"].startswith(
        "It compiles, but its outputs"
    )
    assert job["state"] == "completed" and job["result"]["verdict"] == "passed"
    whole, *lines = batch.splitlines()
    assert json.loads(whole)["verdicts"] == {"passed": 1, "compile_error": 1}
    assert [line.split("\t")[:3] for line in lines] == [
        ["0", "completed", "passed"],
        ["1", "completed", "compile_error"],
    ]
    assert json.loads(cancelled)["job_id"] == job["job_id"]
    assert json.loads(refused)["type"].endswith("invalid-request")
    assert len(json.loads(refused)["errors"]) == 4


@needs_tools
def test_the_request_of_the_readme_is_answered(url: str) -> None:
    printed = [block for block in blocks(ROOT / "README.md", "bash") if "localhost:8000" in block]
    (compared,) = map(json.loads, answered(printed, url))
    assert compared["verdict"] == "passed"
    assert compared["explanation"].startswith("It compiles, and its outputs are right")


def test_the_printed_settings_start_the_tools() -> None:
    first, second = (json.loads(block) for block in blocks(DOCS / "mcp.md", "json"))
    local = first["mcpServers"]["kernel-eval"]
    assert local["command"] == "kernel-eval" and parser().parse_args(local["args"]).command == "mcp"
    (short,) = (json.loads(block) for block in blocks(ROOT / "README.md", "json") if "mcpServers" in block)
    assert {**short["mcpServers"]["kernel-eval"], "command": "kernel-eval"} == local
    given = parser().parse_args(["mcp", "--http"])
    assert second["servers"]["kernel-eval"]["url"] == f"http://{given.host}:{given.port}/mcp"


def test_the_printed_answer_of_a_tool_is_one(url: str) -> None:
    from kernel_eval_client.agents.mcp_server import server

    (printed,) = blocks(DOCS / "mcp.md", "text")
    ((_, told),) = call(server(url), BROKEN)
    assert re.sub(r"job [\w-]+", "job 7c0f…", told) == printed.rstrip("\n")
