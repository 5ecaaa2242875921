"""Results as the client reads them: whose a flag is, what is a bound, and that the names are the service's."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from domain.result import Status
from kernel_eval_client import Result, Speedup, Verdict
from kernel_eval_client.cli import show
from kernel_eval_client.timing import BOUNDED
from profiling.results.samples import TimeRecord
from tests.client.suite_files import result_of

SHORT = f"too short for what a window can resolve here: {BOUNDED}, not a measurement"


def answer(**more: Any) -> Result:
    timing = {"method": "host_window", "trusted_ms": 0.5, "stats": {"mean": 0.5}, "flags": [SHORT]}
    kernel = {"status": "passed", "compiled": True, "correctness": True, "timing": timing}
    reference = {**kernel, "timing": {**timing, "flags": []}}
    wire = {"job_id": "j", "verdict": "passed", "kernel_exec_result": kernel, "ref_result": reference}
    return Result.from_dict({**wire, **more})


def test_flags_are_all_of_the_answer_s_and_the_kernel_s_own_are_still_there() -> None:
    told = [f"the kernel: {SHORT}", "the reference: 1 of 14 windows were disturbed", "the task: zeros would pass"]
    found = answer(flags=told)
    assert list(found.flags) == told and found.to_dict()["flags"] == 3
    assert list(found.kernel.flags) == [SHORT]
    assert list(answer().flags) == [SHORT], "a service that has no such list"
    assert result_of("compile_error", None).flags == ()


def test_why_there_is_no_speed_up_is_told() -> None:
    found = answer(speedup=None, no_speedup="the kernel was not timed")
    assert found.no_speedup == found.to_dict()["no_speedup"] == "the kernel was not timed"
    assert answer().no_speedup is None


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    [(0.2, None, "at_least"), (0.0, 0.2, "at_most"), (0.0, None, None), (0.1, 0.3, None), (0.2, 0.2, None)],
)
def test_a_bound_is_told_from_a_ratio(low: float, high: float | None, bound: str | None) -> None:
    speedup = Speedup(0.2, low, high, "not_distinguishable")
    assert speedup.bound == bound
    row = answer(speedup=dict(vars(speedup))).to_dict()
    assert row["speedup"] == (None if bound else 0.2) and (row["speedup_low"], row["speedup_high"]) == (low, high)


def test_a_time_that_is_an_upper_bound_is_shown_as_one() -> None:
    found = answer()
    assert show.runtime(found.kernel) == "<= 500 µs" and show.runtime(found.reference) == "500 µs"
    assert found.to_dict()["time_bounded"] is True and found.to_dict()["ref_time_bounded"] is False


def test_the_service_flags_a_bound_in_those_words() -> None:
    ready = {"setup_ms": [0.0] * 3, "null_setup_ms": [0.0] * 3}
    record = TimeRecord(1, is_cuda=False, gated=False, elapsed_ms=[1.0, 1.2, 0.9], null_ms=[1.1, 1.0, 1.0], **ready)
    assert SHORT in record.timing("").flags


def test_the_verdicts_are_the_service_s() -> None:
    assert set(get_args(Verdict)) == {status.value for status in Status}
