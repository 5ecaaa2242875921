"""The demo's table, from answers as the service gives them."""

from __future__ import annotations

import dataclasses
from typing import Any

from domain.result import Outcome, Report, RuntimeStats, Speedup, Status, Timing
from stack.demo_report import WIDTH, table
from stack.example import Example
from stack.example_run import Trial
from stack.terminal import Terminal

FASTER = Example("compare-faster", "/compare", {}, Status.PASSED, Status.PASSED, faster=True, note="a note")
STATS = RuntimeStats(0.0123456, 0.001, 0.012, 0.013, 0.0123, 0.013, 0.013)
TIMING = Timing("events", STATS, 0.0123, 10, 3, 30, 0.5, "events", "cold")


def trial(example: Example, status: Status, low: float = 2.0) -> Trial:
    outcome = Outcome(status, "torch", compiled=True, message=None if status is Status.PASSED else "why\nmore")
    timed = dataclasses.replace(outcome, timing=TIMING)
    report = Report(timed, {"host": "h"}, reference=timed, speedup=Speedup(3.14159, low, 4.0, "faster"))
    job: dict[str, Any] = {"state": "completed", "stage": "done", "result": report.body("id")}
    return Trial(example, example.on_cpu, "id", posted=0.0, ended=1.5, job=job)


def shown(trials: list[Trial]) -> str:
    console = Terminal(width=WIDTH)
    with console.capture() as capture:
        console.print(table(trials))
    return capture.get()


def test_an_expected_verdict() -> None:
    one = trial(FASTER, Status.PASSED)
    assert one.as_expected
    text = shown([one])
    assert "✓" in text
    assert "0.0123 → 0.0123" in text
    assert "3.14× [2.00 – 4.00]" in text


def test_another_verdict_shows_why() -> None:
    one = trial(FASTER, Status.WRONG_RESULT)
    assert not one.as_expected
    assert "✗" in shown([one])
    assert "why" in shown([one])
    assert "more" not in shown([one])


def test_right_but_not_faster_beyond_doubt_is_not_as_expected() -> None:
    one = trial(FASTER, Status.PASSED, low=0.9)
    assert not one.as_expected
    assert "not faster" in shown([one])


def test_a_job_that_does_not_end_shows_where_it_is() -> None:
    building = Trial(FASTER, Status.PASSED, "id", posted=0.0, job={"state": "building", "stage": "build"})
    assert "building" in shown([building])
    assert not building.as_expected
