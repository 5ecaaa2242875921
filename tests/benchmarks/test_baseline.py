"""The baseline of the benchmark judges as its name says: a right kernel is right, a wrong one is not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks import jobs
from benchmarks.baseline import baseline, judge


def test_it_judges() -> None:
    right = judge(jobs.right())
    assert right["correct"] and min(right["ms"].values()) > 0
    wrong = jobs.right()
    wrong["custom_kernel"]["source_code"] = jobs.WRONG
    assert not judge(wrong)["correct"]


@pytest.mark.slow  # A hundred calls, interpreted.
def test_it_judges_triton() -> None:
    """In Triton's interpreter, where there is no GPU."""
    right, wrong = jobs.triton(), jobs.triton()
    wrong["custom_kernel"]["source_code"] = jobs.TRITON.replace("0.0)", "1.0)")
    assert _judged_apart(right)["correct"] and not _judged_apart(wrong)["correct"]


def _judged_apart(body: jobs.Body) -> dict[str, Any]:
    """Triton asks once in a process whether it is to interpret."""
    command = [sys.executable, "-m", "benchmarks.baseline"]
    done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, timeout=100, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.slow  # Starts an interpreter with torch, which is what it measures.
def test_each_job_has_an_interpreter_of_its_own() -> None:
    latency = baseline([jobs.right(), jobs.right()], within_s=600)
    assert latency.count == 2 and latency.p50 > 100, "importing torch alone takes longer"
    assert baseline([jobs.right(), jobs.right()], within_s=0).count == 1, "its time is over with the first"
