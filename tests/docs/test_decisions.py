"""docs/adr/: short decisions, numbered without gaps, each with the same sections and a line in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from domain.paths import ROOT

FOLDER = ROOT / "docs" / "adr"
DECISIONS = sorted(FOLDER.glob("0*.md"))
MAX_WORDS = 400
NUMBER = re.compile(r"\bADR (\d+)\b|\bdocs/adr/(\d{4})\b")


def number_of(decision: Path) -> int:
    return int(decision.name[:4])


def test_the_numbers_have_no_gaps() -> None:
    assert [number_of(decision) for decision in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: decision.stem)
def test_a_decision_is_short_and_has_every_section(decision: Path) -> None:
    text = decision.read_text(encoding="utf-8")
    assert len(text.split()) <= MAX_WORDS
    status = r"(Accepted|Superseded by \[\d+\]\(.+\)), \d{4}-\d\d-\d\d\."
    in_part = r"( Supersede[sd] (in part by )?\[\d+\]\(.+\).*)?"
    assert re.match(rf"# {number_of(decision)}\. \w.*\n\n{status}{in_part}\n\n## Context\n", text)
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [section for section in sections if section != "Rejected"] == ["Context", "Decision", "Consequences"]


def test_the_index_has_every_title() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = {name: f"# {number}. {title}" for number, title, name in re.findall(r"- (\d+)\. \[(.+)\]\((.+)\)", index)}
    assert listed == {decision.name: decision.read_text(encoding="utf-8").splitlines()[0] for decision in DECISIONS}


def test_the_code_refers_to_decisions_that_exist() -> None:
    packages = [path.parent for path in ROOT.glob("*/__init__.py")]
    sources = [
        *ROOT.glob("*.py"),
        *(path for package in packages for path in package.rglob("*.*") if path.suffix in (".py", ".lua")),
    ]
    numbers = {
        int(first or second) for path in sources for first, second in NUMBER.findall(path.read_text(encoding="utf-8"))
    }
    assert numbers
    assert numbers <= {number_of(decision) for decision in DECISIONS}
