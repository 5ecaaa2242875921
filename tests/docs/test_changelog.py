"""CHANGELOG.md stays short: one line a change, below the version that the project names."""

from __future__ import annotations

import re
import tomllib

from domain.paths import ROOT

LINES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
MAXIMUM_LENGTH = 120
"""Maximum length of a line, in characters (CONTRIBUTING.md)."""


def test_the_first_version_is_the_projects() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    first = next(line for line in LINES if line.startswith("## "))
    assert re.fullmatch(rf"## {re.escape(version)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", first)


def test_a_change_is_one_line_in_a_group() -> None:
    versions = LINES[next(number for number, line in enumerate(LINES) if line.startswith("## ")) :]
    assert [line for line in versions if line and not re.match(r"## \d|### [A-Z]|- [A-Z`].*\.$", line)] == []
    assert [line for line in versions if len(line) > MAXIMUM_LENGTH] == []
