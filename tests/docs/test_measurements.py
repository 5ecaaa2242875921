"""docs/measurements.md says what the data files say, and has the figures that code and documents point to."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.results.page import DOCUMENT, text
from benchmarks.results.records import FOLDER, RecordError, subjects
from domain.kernel import KernelType
from domain.paths import ROOT
from domain.result import Status

DECISIONS = "docs/adr/"
"""Cited as a folder: a decision may be replaced by another one."""

CITED = {path for subject in subjects() for run in subject.runs for path in run.cited_by}
MAXIMUM_LINES = 250


def pointing_files() -> Iterator[str]:
    """Every source and every document below docs/ that names the page, apart from those that make or test it."""
    packages = [ROOT / "tests", *(path.parent for path in ROOT.glob("*/__init__.py"))]
    for path in [*(ROOT / "docs").glob("*.md"), *(path for package in packages for path in package.rglob("*.py"))]:
        makes_it = path == DOCUMENT or path.is_relative_to(FOLDER) or path == Path(__file__)
        if not makes_it and "measurements.md" in path.read_text(encoding="utf-8"):
            yield str(path.relative_to(ROOT))


def test_the_page_is_fresh_and_short() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), "run: python -m benchmarks.results"
    assert text().count("\n") <= MAXIMUM_LINES, "remove figures that nothing cites and that newer ones supersede"


@pytest.mark.parametrize("path", sorted(pointing_files()))
def test_a_file_that_points_to_the_page_has_a_figure_there(path: str) -> None:
    assert path in CITED, "name it in `cited_by` of the run with its figure, in benchmarks/results/"


@pytest.mark.parametrize("path", sorted(CITED - {DECISIONS}))
def test_a_cited_figure_is_still_needed(path: str) -> None:
    assert (ROOT / path).is_file(), "remove it from `cited_by`, and the run if nothing else cites it"
    assert "measurements.md" in (ROOT / path).read_text(encoding="utf-8"), "it does not point to the page any more"


RUN = """
title = "Subject"
about = "One sentence."

[[run]]
date = 2026-11-27
commit = "e384b38"
machine = "here"
load = "idle"
command = "make test"
figures = [{ metric = "time", value = 0.10, low = 0.1, high = 0.2, unit = "s", n = 3 }]
"""
MACHINES = '[here]\nname = "2 cores"\ncores = 2\n'


def test_a_figure_keeps_its_digits(tmp_path: Path) -> None:
    (tmp_path / "machines.toml").write_text(MACHINES)
    (tmp_path / "01_subject.toml").write_text(RUN)
    (subject,) = subjects(tmp_path)
    ((figure,), machine) = (subject.runs[0].figures, subject.runs[0].machine)
    assert (str(figure.value), machine.cores, machine.gpu) == ("0.10", 2, None)


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ('load = "idle"', "", "missing keys"),
        ('load = "idle"', 'load = "idle"\nspread = "none"', "unknown keys"),
        ("date = 2026-11-27", 'date = "yesterday"', "`date` has the type str"),
        ('"e384b38"', '"HEAD"', "seven hexadecimal digits"),
        ('"here"', '"elsewhere"', "machines.toml has no elsewhere"),
        ('"make test"', '"by hand"', "needs a `note`"),
        ("value = 0.10, low = 0.1, high = 0.2", "low = 0.1", "give `value`"),
        ("value = 0.10, low = 0.1", "value = 0.3, low = 0.1", "not in this order"),
        ("n = 3", "n = true", "`n` has the type bool"),
        ('metric = "time"', 'metric = "a | b"', "without a bar"),
        ("[[run]]", "[[run", "01_subject.toml: "),
    ],
)
def test_a_record_that_breaks_the_format_is_refused(tmp_path: Path, line: str, instead: str, message: str) -> None:
    assert line in RUN
    (tmp_path / "machines.toml").write_text(MACHINES)
    (tmp_path / "01_subject.toml").write_text(RUN.replace(line, instead))
    with pytest.raises(RecordError, match=re.escape(message)):
        subjects(tmp_path)


def test_the_starter_suites_table_is_whole() -> None:
    with (FOLDER / "starter_suite.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert len(rows) == len({(row["problem"], row["kernel_type"]) for row in rows}) == 92
    assert {row["kernel_type"] for row in rows} <= set(KernelType)
    for row in rows:
        passed = Status(row["verdict"]) is Status.PASSED
        assert passed == (row["speedup"] != "") == (row["time_us"] != "")
        assert not passed or (float(row["speedup"]) > 0 and int(row["time_us"]) > 0)
