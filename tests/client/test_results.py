"""Results as the client reads them: whose a flag is, what is a bound, and that the names are the service's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from domain.flags.codes import FlagCode
from domain.result import Status
from kernel_eval_client import Flag, Result, Speedup, Verdict
from kernel_eval_client import flag as flags
from kernel_eval_client.cli import show
from kernel_eval_client.result import RobustnessFailure
from profiling.window.timed_window import Clock
from tests.client.suite_files import result_of
from tests.flag_codes import codes
from tests.kernel_windows import kernel_windows, timing_of, window

SHORT = {"code": "upper_bound", "message": "too short for what a window can resolve", "data": {"call_ms": 0.5}}


def answer(**more: Any) -> Result:
    timing = {"method": "host_window", "latency_ms": 0.5, "stats": {"mean": 0.5}, "flags": [SHORT]}
    kernel = {"status": "passed", "compiled": True, "correctness": True, "timing": timing}
    reference = {**kernel, "timing": {**timing, "flags": []}}
    wire = {"job_id": "j", "verdict": "passed", "kernel_exec_result": kernel, "ref_result": reference}
    return Result.from_dict({**wire, **more})


def test_flags_are_all_of_the_answer_s_and_the_kernel_s_own_are_still_there() -> None:
    short = Flag("upper_bound", "too short for what a window can resolve", {"call_ms": 0.5})
    disturbed = {"code": "windows_excluded", "message": "1 of 14 windows", "data": {"windows": 14}}
    weak = {"code": "trivial_output_passes", "message": "zeros would pass", "data": {}}
    told = [{**SHORT, "kernel": "candidate"}, {**disturbed, "kernel": "reference"}, {**weak, "kernel": None}]
    found = answer(flags=told)
    assert list(found.flags) == [
        replace(short, kernel="candidate"),
        Flag("windows_excluded", "1 of 14 windows", {"windows": 14}, "reference"),
        Flag("trivial_output_passes", "zeros would pass"),
    ]
    assert found.to_dict()["flag_count"] == 3
    assert list(map(str, found.flags))[1:] == ["reference: 1 of 14 windows", "zeros would pass"]
    assert list(found.kernel.flags) == [short]
    assert list(answer().flags) == [short], "a service that has no such list"
    assert result_of("compile_error", None).flags == ()


def test_why_there_is_no_speed_up_is_told() -> None:
    found = answer(speedup=None, speedup_unavailable_reason="the kernel was not timed")
    assert (
        found.speedup_unavailable_reason == found.to_dict()["speedup_unavailable_reason"] == "the kernel was not timed"
    )
    assert answer().speedup_unavailable_reason is None


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    [(0.2, None, "at_least"), (0.0, 0.2, "at_most"), (0.0, None, None), (0.1, 0.3, None), (0.2, 0.2, None)],
)
def test_a_bound_is_told_from_a_ratio(low: float, high: float | None, bound: str | None) -> None:
    speedup = Speedup(0.2, low, high, "not_distinguishable")
    assert speedup.bound == bound
    row = answer(speedup=dict(vars(speedup))).to_dict()
    assert row["speedup"] == (None if bound else 0.2) and (row["speedup_ci_low"], row["speedup_ci_high"]) == (low, high)


def test_a_time_that_is_an_upper_bound_is_shown_as_one() -> None:
    found = answer()
    assert show.runtime(found.kernel) == "<= 500 µs" and show.runtime(found.reference) == "500 µs"
    assert found.to_dict()["time_bounded"] is True and found.to_dict()["ref_time_bounded"] is False


def test_failures_beyond_the_task_are_read_by_their_fields() -> None:
    failure = {
        "distribution": "large",
        "status": "wrong_result",
        "message": "Wrong on large inputs",
        "mismatch_count": 3,
        "element_count": 64,
        "first_mismatch": {"output": 0, "index": [1], "expected": 1.0, "actual": "nan"},
    }
    kernel = {"status": "passed", "compiled": True, "correctness": True}
    compared = {"passed": True, "robustness": {"failed": [failure]}}
    found = answer(kernel_exec_result={**kernel, "comparison": compared})
    assert found.kernel.comparison is not None and found.to_dict()["robustness_failures"] == 1
    assert list(found.kernel.comparison.robustness) == [RobustnessFailure(**failure)]
    earlier = answer(kernel_exec_result={**kernel, "comparison": {"passed": True}})
    assert earlier.to_dict()["robustness_failures"] == 0 and answer().to_dict()["robustness_failures"] is None


@pytest.mark.parametrize("wire", [None, "odd", ["odd", 1, None], {"code": "x"}])
def test_what_is_no_list_of_flags_has_none(wire: Any) -> None:
    assert Flag.all_of(wire) == ()


def test_members_of_another_type_leave_a_flag_empty() -> None:
    assert Flag.all_of([{"code": 1, "message": None, "data": [], "kernel": 2}]) == (Flag("", ""),)


def test_the_codes_that_the_client_knows_are_the_service_s() -> None:
    assert {flags.UPPER_BOUND, flags.CPU_TIME_INDICATIVE, flags.INTERPRETED, flags.LOWER_PRECISION} <= {
        str(code) for code in FlagCode
    }


def test_the_service_flags_a_bound_with_that_code() -> None:
    windows = kernel_windows(1, is_cuda=False, gated=False)
    for elapsed_ms, null_ms in ((1.0, 1.1), (1.2, 1.0), (0.9, 1.0)):
        windows.usual.add(window(elapsed_ms), Clock(null_ms, 0.1))
    assert SHORT["code"] in codes(timing_of(windows).flags)


def test_the_verdicts_are_the_service_s() -> None:
    assert set(get_args(Verdict)) == {status.value for status in Status}
