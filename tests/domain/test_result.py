"""The answer's body: the original's keys, and nothing that JSON does not have."""

import json
import math
from dataclasses import replace

import pytest

from domain.result import Gradients, Outcome, Report, RuntimeStats, Speedup, Status, Timing, first_line

STATS = RuntimeStats(1.0, 0.1, 0.9, 1.2, 1.0, 1.1, 1.2)


def timing(**more):
    return Timing("gated_window", STATS, 1.0, 10, 5, 50, 0.1, "events", "cold", **more)


def test_a_passed_evaluation_reads_as_the_originals_does():
    outcome = Outcome(Status.PASSED, "torch", compiled=True, timing=timing())
    body = Report(outcome, {"host": "h", "address": "1.2.3.4"}).body("id")
    result = body["kernel_exec_result"]
    assert (body["job_id"], body["status"], body["pod_name"], body["pod_ip"]) == ("id", "success", "h", "1.2.3.4")
    assert (result["compiled"], result["correctness"], result["runtime"]) == (True, True, 1.0)
    assert set(result["runtime_stats"]) == {"mean", "std", "min", "max", "median", "percentile_95", "percentile_99"}
    assert result["compilation_error"] is result["validation_error"] is result["profiling_error"] is None
    assert "ref_runtime" not in body


def test_errors_go_where_readers_look_for_them():
    compile_error = Outcome(Status.COMPILE_ERROR, "cuda", message="bad", log="kernel.cu(3): error")
    result = Report(compile_error, {}).body("id")["kernel_exec_result"]
    assert result["compilation_error"] == "bad\nkernel.cu(3): error" and result["validation_error"] is None
    assert result["runtime"] == 0.0 and "runtime_stats" not in result
    wrong = Outcome(Status.WRONG_RESULT, "cuda", compiled=True, message="differs")
    result = Report(wrong, {}).body("id")["kernel_exec_result"]
    assert result["validation_error"] == "differs" and result["compilation_error"] is None
    assert result["profiling_error"] == "differs"


def test_a_comparison_without_times_has_the_originals_zeros():
    failed = Outcome(Status.WRONG_RESULT, "torch", compiled=True)
    body = Report(failed, {}, reference=Outcome(Status.PASSED, "torch", compiled=True)).body("id")
    assert set(body["ref_runtime"].values()) == {0.0} and body["speedup"] is None


def test_where_there_is_no_speedup_a_sentence_says_why():
    right, wrong = Outcome(Status.PASSED, "torch", timing=timing()), Outcome(Status.WRONG_RESULT, "torch")
    untimed = Outcome(Status.PASSED, "torch")
    told = [
        Report(one, {}, reference=right).body("id")["speedup_unavailable_reason"] for one in (right, wrong, untimed)
    ]
    assert ["too fast to time here" in told[0], "did not pass" in told[1], "not timed" in told[2]] == [True] * 3
    found = Report(right, {}, right, Speedup(2.0, 1.0, 3.0, "faster")).body("id")
    assert found["speedup_unavailable_reason"] is None and "speedup_unavailable_reason" not in Report(right, {}).body(
        "id"
    )


def test_what_the_sanitizer_found_is_there_where_it_was_asked():
    found = {"status": "clean", "tools": {}}
    outcome = Outcome(Status.PASSED, "cuda", compiled=True)
    assert "sanitizer" not in Report(outcome, {}).body("id")["kernel_exec_result"]
    checked = Outcome(Status.PASSED, "cuda", compiled=True, sanitizer=found)
    assert Report(checked, {}).body("id")["kernel_exec_result"]["sanitizer"] == found


def test_nobody_can_say_of_what_was_not_run_whether_it_is_right():
    result = Report(Outcome(Status.UNSUPPORTED, "cuda", compiled=True), {}).body("id")["kernel_exec_result"]
    assert (result["compiled"], result["correctness"]) == (True, None)


def test_numbers_that_json_does_not_have_become_null():
    outcome = Outcome(
        Status.PASSED, "torch", compiled=True, timing=timing(gpu_state={"x": [math.nan, {"y": -math.inf}]})
    )
    body = Report(outcome, {}, outcome, Speedup(math.inf, 1.0, 2.0, "faster")).body("id")
    json.dumps(body, allow_nan=False)
    assert body["kernel_exec_result"]["timing"]["gpu_state"] == {"x": [None, {"y": None}]}
    assert body["speedup"]["ratio"] is None


def test_half_characters_do_not_reach_the_answer():
    outcome = Outcome(Status.RUNTIME_ERROR, "torch", compiled=True, message="\ud800 größe", output="\udcff")
    result = Report(outcome, environment={"host": "here"}).body("j")["kernel_exec_result"]
    assert (result["validation_error"], result["output"]) == ("? größe", "?")


def side(forward_ms, together_ms, ci=0.1, speedup=None):
    forward, together = (replace(timing(relative_ci=ci), latency_ms=ms) for ms in (forward_ms, together_ms))
    found = Gradients(["output 0"], {"input 1": "none"}, 2.0, forward, speedup)
    return Outcome(Status.PASSED, "torch", compiled=True, timing=together, gradients=found)


def gradients_of(reference, candidate):
    return Report(candidate, {}, reference).body("id")["kernel_exec_result"]["gradients"]


def test_the_backward_is_the_difference_with_both_intervals():
    found = gradients_of(side(3.0, 9.0), side(3.0, 7.0, speedup=Speedup(1.0, 0.9, 1.1, "not_distinguishable")))
    assert found["backward"]["latency_ms"] == 4.0 and "less the forward" in found["backward"]["method"]
    assert found["backward"]["half_width_ms"] == pytest.approx(math.hypot(0.3, 0.7))
    assert found["forward"]["latency_ms"] == 3.0 and found["not_compared"] == {"input 1": "none"}
    assert found["speedup"]["forward"]["ratio"] == 1.0
    backward = found["speedup"]["backward"]
    assert backward["ratio"] == 1.5
    of_reference, own = math.hypot(0.3, 0.9), math.hypot(0.3, 0.7)
    assert backward["ci_low"] == pytest.approx((6 - of_reference) / (4 + own))
    assert backward["ci_high"] == pytest.approx((6 + of_reference) / (4 - own))


def test_an_unknown_interval_or_a_difference_near_zero_says_so():
    found = gradients_of(side(3.0, 9.0), side(3.0, 7.0, ci=None))
    assert found["backward"]["half_width_ms"] is None and found["speedup"]["backward"]["ci_low"] is None
    assert found["speedup"]["forward"] is None
    near_zero = gradients_of(side(3.0, 9.0), side(6.9, 7.0))
    assert near_zero["speedup"]["backward"] is None and near_zero["backward"]["latency_ms"] == pytest.approx(0.1)


def test_a_wrong_kernel_has_no_time_of_a_pass():
    wrong = replace(side(3.0, 7.0), status=Status.WRONG_RESULT, timing=None)
    found = gradients_of(replace(side(3.0, 9.0), timing=None), wrong)
    assert found["forward"] is found["backward"] is None and "speedup" not in found
    assert found["compared"] == ["output 0"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, ""),
        ("\n  refused \nTraceback", "refused"),
        ("MLIRError: failed:\n\nerror: wrong rank\nTraceback", "MLIRError: failed: error: wrong rank"),
        ("failed:\n", "failed:"),
    ],
)
def test_a_first_line_that_announces_the_reason_has_it_too(text, line):
    assert first_line(text) == line
