"""What qualifies a verdict is listed once, wherever a result states it."""

from __future__ import annotations

from api.pages import evidence
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import CANDIDATE
from tests.api import results


def test_reused_inputs_of_a_timed_kernel_are_told_once() -> None:
    told = evidence.flags(results.passed(2.0, Flag.of(FlagCode.INPUTS_REUSED, calls=3)))
    (reused,) = [flag for flag in told if flag["code"] == FlagCode.INPUTS_REUSED]
    assert reused["kernel"] == CANDIDATE and reused["data"] == {"calls": 3}
