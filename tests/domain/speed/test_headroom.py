"""The time over the least time of the work, and why it is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import Timing
from domain.speed.headroom import headroom
from tasks.jobs.job_summary import Summary
from tests.api import results

TIMED = results.timing(0.1)
BOUND = results.timing(0.1, Flag(FlagCode.UPPER_BOUND, "too short"))


def shares(memory: float, arithmetic: float | None) -> dict[str, Any]:
    return {"memory_share": memory, "arithmetic_share": arithmetic}


@pytest.mark.parametrize(
    ("position", "ratio", "bound", "basis"),
    [
        (shares(0.25, None), 4.0, "memory", "bytes"),
        (shares(0.25, 0.0), 4.0, "memory", "bytes"),
        (shares(0.25, 0.5), 2.0, "arithmetic", "bytes_and_operations"),
        (shares(0.5, 0.25), 2.0, "memory", "bytes_and_operations"),
        (shares(1.25, None), 0.8, "memory", "bytes"),
    ],
)
def test_it_is_the_nearer_of_both_roofs(position: dict[str, Any], ratio: float, bound: str, basis: str) -> None:
    assert headroom(TIMED, position) == {"ratio": ratio, "bound": bound, "basis": basis, "unavailable": None}


@pytest.mark.parametrize(
    ("timing", "position", "reason"),
    [
        (None, None, "not_timed"),
        (TIMED, None, "rates_unknown"),
        (BOUND, shares(0.5, None), "time_is_a_bound"),
        (TIMED, shares(0.0, None), "no_work"),
    ],
)
def test_where_it_is_unknown_a_code_says_why(
    timing: Timing | None, position: dict[str, Any] | None, reason: str
) -> None:
    found = headroom(timing, position)
    assert found.pop("unavailable") == reason and not any(found.values())


def test_the_summary_has_the_ratio() -> None:
    body = results.passed(2.0)
    body["kernel_exec_result"]["headroom"] = headroom(TIMED, shares(0.5, None))
    assert Summary.from_body(body).headroom == 2.0
    assert Summary.from_body(results.passed(2.0)).headroom is None
