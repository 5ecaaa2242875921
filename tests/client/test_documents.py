"""What the documents about the client print: the Python is run, the commands are parsed, the requests are sent."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_eval_client.cli.exits import MEANINGS
from kernel_eval_client.cli.main import parser
from stack.environment import ROOT
from tests.client.test_mcp import BROKEN, call

DOCS = ROOT / "docs"
GUIDE = DOCS / "client.md"
NAMES = ("client", "suites", "mcp", "rewards", "DEVICE_METRICS_GUIDE", "USER_MANUAL", "migration")
DOCUMENTS = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in NAMES)]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [block for kind, block in _BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


PROGRAMS = [
    # Those of two documents in every run, the others in the long one.
    pytest.param(block, id=f"{path.stem}-{number}", marks=[] if path.stem in ("README", "client") else pytest.mark.slow)
    for path in DOCUMENTS
    for number, block in enumerate(blocks(path, "python"))
    if "kernel_eval" in block
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
    exec(compile(program.replace("http://localhost:8000", url), str(GUIDE), "exec"), {"__name__": "printed"})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_is_one(command: str) -> None:
    parser().parse_args(shlex.split(command)[1:])


def test_the_exit_statuses_are_documented() -> None:
    printed = dict(re.findall(r"^\| (\d+) \| (.*) \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert printed == {str(int(status)): meaning for status, meaning in MEANINGS.items()}


def test_every_command_is_in_the_guide() -> None:
    printed = [
        line for block in blocks(GUIDE, "bash") for line in block.splitlines() if line.startswith("kernel-eval ")
    ]
    commands = {shlex.split(command)[1] for command in printed}
    assert set(re.findall(r"^    (\w+)(?: +[A-Z]|$)", parser().format_help(), re.MULTILINE)) == commands


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_printed_requests_are_answered(url: str) -> None:
    """All of the guide's in one shell, as one variable is used in a later one."""
    requests = blocks(DOCS / "API_GUIDE.md", "bash")
    marked = "\necho; echo NEXT\n".join(requests).replace("http://localhost:8000", url)
    done = subprocess.run(["bash", "-euc", marked], capture_output=True, text=True, timeout=240)
    answers = [
        [json.loads(line) for line in part.replace("}\n{", "}\x00{").strip().split("\x00")]
        for part in done.stdout.split("NEXT")
    ]
    assert len(answers) == len(requests) == 7, done.stderr
    health, evaluated, compared, job, batch, cancelled, refused = answers
    assert health[0]["status"] == "healthy"
    assert evaluated[0]["verdict"] == compared[0]["verdict"] == "passed"
    assert job[0]["state"] == "completed" and job[0]["result"]["verdict"] == "passed"
    assert batch[0]["accepted"] == 2 and len(batch[1]["jobs"]) >= 4
    assert cancelled[0]["job_id"] == job[0]["job_id"]
    assert refused[0]["type"].endswith("invalid-request")


def test_the_printed_settings_start_the_tools() -> None:
    first, second = (json.loads(block) for block in blocks(DOCS / "mcp.md", "json"))
    local = first["mcpServers"]["kernel-eval"]
    assert local["command"] == "kernel-eval" and parser().parse_args(local["args"]).command == "mcp"
    given = parser().parse_args(["mcp", "--http"])
    assert second["servers"]["kernel-eval"]["url"] == f"http://{given.host}:{given.port}/mcp"


def test_the_printed_answer_of_a_tool_is_one(url: str) -> None:
    from kernel_eval_client.agents.mcp_server import server

    (printed,) = blocks(DOCS / "mcp.md", "text")
    ((_, told),) = call(server(url), BROKEN)
    assert re.sub(r"job [\w-]+", "job 7c0f…", told) == printed.rstrip("\n")
