"""What docs/client.md and the README print of the client: the Python is run, the commands are parsed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kernel_eval_client.cli.exits import MEANINGS
from kernel_eval_client.cli.main import parser
from stack.environment import ROOT

GUIDE = ROOT / "docs" / "client.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [block for kind, block in _BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


PROGRAMS = [block for path in (ROOT / "README.md", GUIDE) for block in blocks(path, "python") if "kernel_eval" in block]
COMMANDS = [
    line.partition("#")[0].strip()
    for path in (ROOT / "README.md", GUIDE)
    for block in blocks(path, "bash")
    for line in block.splitlines()
    if line.startswith("kernel-eval ")
]


def test_the_documents_print_both() -> None:
    assert len(PROGRAMS) >= 8 and len(COMMANDS) >= 14


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
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
    commands = {shlex.split(command)[1] for command in COMMANDS}
    assert set(re.findall(r"^    (\w+) +[A-Z]", parser().format_help(), re.MULTILINE)) == commands
