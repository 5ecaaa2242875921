"""What is told of counters and sanitizer where tool or kernel do not behave: programs of ours in the tools' place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.device_metrics import CounterRequest
from domain.listing import NoListing, ProfilerReport
from domain.paths import ROOT
from profiling.sanitizer_report import SanitizerTool
from tasks.diagnostics import sanitizer_stage
from tasks.diagnostics.ncu_stage import read_counters
from tasks.diagnostics.sanitizer_stage import run_sanitizer
from tasks.diagnostics.tool_run import Inspection
from tasks.node import tool_lookup
from tests.tasks.diagnostics.test_tool_run import inspection, job, worker  # noqa: F401

SAMPLE = ROOT / "tests" / "profiling" / "samples" / "ncu-h200-basic.csv"

NCU = """#!/bin/sh
[ "$1" = --version ] && echo "Version 1.2.3.4" && exit
[ "$1" = --import ] && exec cat table.csv
echo run >> runs
while [ $# -gt 4 ]; do shift; done
RUN
"""
SANITIZER = """#!/bin/sh
log=$4
while [ $# -gt 4 ]; do shift; done
"$@"
RUN
"""
SOUND = '"$@"; echo report > profile.ncu-rep'
CLEAN = 'printf "========= COMPUTE-SANITIZER\\n========= ERROR SUMMARY: 0 errors\\n" > $log'

Make = Callable[..., Inspection]


@pytest.fixture
def look(worker: Any, job: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:  # noqa: F811
    """An inspection of one kernel of that body, with tools that run those lines."""

    def made(body: str = "", ncu: str = SOUND, sanitizer: str = CLEAN) -> Inspection:
        whole = inspection(worker, job, body)
        whole.kernel_runs = [whole.candidate]
        folder = whole.candidate.folder
        for name, text in (("ncu", NCU.replace("RUN", ncu)), ("sanitizer", SANITIZER.replace("RUN", sanitizer))):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "table.csv").write_bytes(SAMPLE.read_bytes())
        (folder / "table.csv").chmod(0o644)
        monkeypatch.setattr(tool_lookup, "ncu", lambda: folder / "ncu")
        monkeypatch.setattr(tool_lookup, "compute_sanitizer", lambda: folder / "sanitizer")
        monkeypatch.setattr(Inspection, "unavailable_reason", lambda self: None)
        return whole

    yield made


def counted(of: Inspection, *metrics: str) -> tuple[str, Any, int]:
    told = read_counters(of, CounterRequest(metrics=metrics))
    runs = (of.candidate.folder / "runs").read_text().count("run")
    return told["status"], told["candidate"]["reason"], runs


def test_a_report_is_read_and_kept(look: Make) -> None:
    of = look()
    told = read_counters(of, CounterRequest())
    assert told["status"] == "measured" and told["candidate"]["kernels"] and told["original_device_metrics"]
    assert isinstance(of.candidate.diagnosis.profile, ProfilerReport) and of.candidate.diagnosis.profile.size == len(
        "report\n"
    )


@pytest.mark.parametrize(
    ("body", "ncu", "says", "runs"),
    [
        ("", '"$@"; echo "==ERROR== something of its own"', "something of its own", 1),
        ("", '"$@"', "launched no kernel", 1),
        ("raise ValueError('late')", SOUND, "late", 1),
        ("", '"$@"; echo "==ERROR== ERR_NVGPUCTRPERM - no permission"', "refuses counters", 1),
        ("print('ERR_NVGPUCTRPERM')", '"$@"', "launched no kernel", 1),
        ("print('==ERROR== Failed to find metric made__up')", '"$@"', "made__up", 1),
        ("", '"$@"; echo "==ERROR== Failed to find metric sm__asked.sum"', "sm__asked.sum", 2),
    ],
)
def test_why_nothing_was_counted(look: Make, body: str, ncu: str, says: str, runs: int) -> None:
    """Also where the submission has left what looks like a report."""
    of = look(body, ncu)
    of.candidate.folder.joinpath("profile.ncu-rep").write_text("forged")
    of.candidate.folder.joinpath("counters.csv").write_bytes(SAMPLE.read_bytes())
    status, reason, ran = counted(of, "sm__asked.sum")
    assert (status, ran) == ("unavailable", runs) and says in reason
    assert isinstance(of.candidate.diagnosis.profile, NoListing)


def test_a_kernel_that_was_watched_is_clean(look: Make) -> None:
    assert run_sanitizer(look())["status"] == "clean"


@pytest.fixture
def one_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool is a program of its own that starts PyTorch anew: seconds, and the same for all four."""
    monkeypatch.setattr(sanitizer_stage, "SanitizerTool", [SanitizerTool.MEMCHECK])


@pytest.mark.usefixtures("one_tool")
def test_one_that_failed_beneath_the_tool_is_not(look: Make) -> None:
    told = run_sanitizer(look("raise ValueError('late')"))
    assert told["status"] == "unavailable" and "late" in told["tools"]["memcheck"]["reason"]


@pytest.mark.usefixtures("one_tool")
def test_a_log_that_the_sanitizer_did_not_write_is_none(look: Make) -> None:
    of = look("", sanitizer=":")
    of.candidate.folder.joinpath("memcheck.txt").write_text("========= ERROR SUMMARY: 0 errors\n")
    told = run_sanitizer(of)
    assert told["status"] == "unavailable" and "left no report" in told["tools"]["memcheck"]["reason"]
