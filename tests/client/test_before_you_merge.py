"""The page for those who merge kernels: its commands, on its files, against a real service on the CPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from domain.paths import ROOT
from kernel_eval_client.cli.main import main
from tests.docs.blocks import BLOCKS

SHOWN = [block.text for block in BLOCKS.values() if block.document == "before-you-merge"]
COMMANDS = [command for text in SHOWN for command in re.findall(r"^\$ kernel-eval (.+)$", text, re.MULTILINE)]
WRITTEN = {found[1]: text for text in SHOWN if (found := re.match(r"# (\w+\.py)\n", text))}
CASES = [{"rows": 1024}, {"rows": 1000, "columns": 8192}, {"rows": 7}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in WRITTEN.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "shapes.json").write_text(json.dumps(CASES), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_shows_its_cases() -> None:
    page = (ROOT / "docs" / "before-you-merge.md").read_text(encoding="utf-8")
    assert json.dumps(CASES) in page and set(WRITTEN) == {"reference.py", "broken.py", "candidate.py"}


@pytest.mark.slow  # Three minutes of both processors.
@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("confirm")])
def test_a_command_ends_as_the_page_says(
    command: str, url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--url", url, *command.split()])
    printed = capsys.readouterr().out.splitlines()
    broken = "broken.py" in command
    assert printed[0].startswith("wrong_result  broken.py" if broken else "passed  candidate.py")
    if "--cases" in command:
        rows = [line.split()[1 if "," not in line else 2] for line in printed if line.startswith("  rows=")]
        assert rows == (["passed", "wrong_result", "wrong_result"] if broken else ["passed"] * 3)
    if "qualify" in command:  # A busy machine may find no speed-up.
        assert any(line.startswith("  fit ") for line in printed)
    else:
        assert status == (1 if broken else 0)
