"""The pages by task: their commands, on their files, against a real service on the CPU."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.paths import ROOT
from kernel_eval_client.cli.main import main
from tests.docs.blocks import BLOCKS

PAGES = ("first-kernel", "why-slow", "train-a-model", "run-for-others")
MAX_WORDS = 400
"""A screen of prose, its blocks included."""
_SHOWN = re.compile(r"^\$ kernel-eval (.+)\n([^$\n]*)", re.MULTILINE)
COMMANDS = [
    pytest.param(block.document, command, printed, id=f"{block.name}-{command.split()[0]}-{number}")
    for block in BLOCKS.values()
    if block.document in PAGES
    for number, (command, printed) in enumerate(_SHOWN.findall(block.text))
]
REQUESTS = [
    pytest.param(json.loads(block.text), id=block.name)
    for block in BLOCKS.values()
    if block.document == "requests-by-type" and block.language == "json"
]
NEEDS_GPU = {"cuda", "torch_cuda"}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_a_screen(page: str) -> None:
    assert len((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split()) <= MAX_WORDS


@pytest.mark.parametrize(("page", "command", "printed"), COMMANDS)
def test_a_command_prints_what_the_page_says(
    page: str,
    command: str,
    printed: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for block in BLOCKS.values():
        if block.document == page and (found := re.match(r"# (\w+\.py)\n", block.text)):
            (tmp_path / found[1]).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    status = main([words[0], "--url", url, *words[1:]])
    output = capsys.readouterr().out
    assert status == 0, output
    assert output.split()[:2] == printed.split()[:2], output


@pytest.mark.parametrize("body", REQUESTS)
def test_a_request_of_each_type_is_judged(body: dict[str, Any], url: str) -> None:
    answer = httpx.post(f"{url}/compare?wait=120", json=body, timeout=150).json()
    expected = "unsupported" if body["custom_kernel"]["kernel_type"] in NEEDS_GPU else "passed"
    assert answer["verdict"] == expected, answer["explanation"]
    assert "ignored" not in answer


def test_there_is_a_request_of_each_type() -> None:
    kinds = {param.values[0]["custom_kernel"]["kernel_type"] for param in REQUESTS}
    assert kinds == {"torch", "torch_cuda", "triton", "cuda", "multi_kernel"} and len(COMMANDS) >= 5


def test_keys_are_made_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEYS_FILE", str(tmp_path / "keys.json"))
    text = (ROOT / "docs" / "run-for-others.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ \.venv/bin/python -m (stack keys .+)$", text, re.MULTILINE)
    added, listed = (
        subprocess.run([sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True, check=True)
        for command in commands
    )
    assert re.search(r"kevk_[0-9a-f]{12}_[0-9a-f]{64}", added.stdout) and "alice" in listed.stdout
