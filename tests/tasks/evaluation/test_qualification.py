"""Fit to be merged or not, from the report of a comparison; and a whole job on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.budget import Budget
from domain.determinism import Batch, BatchVerdict, Determinism, OutputRepeats
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Report, Robustness, RobustnessFailure, Speedup, Status
from domain.speed.baseline import Baseline, BaselineResult
from tasks.evaluation.pipeline import run
from tasks.evaluation.qualification import qualification
from tasks.runtime.worker_context import WorkerContext
from tests.api import results
from tests.tasks.judging import forward, kernel

KERNEL = Kernel("def kernel_fn(x): ...", KernelType.TORCH)
REQUEST = Request(KERNEL, reference=KERNEL, qualify=True)
REPEATS = Determinism(2, [OutputRepeats(10, 0, 0.0, 1, equal_across_processes=True)], Batch(BatchVerdict.INVARIANT))
OUTCOME = Outcome(
    Status.PASSED, "torch", True, timing=results.timing(0.1), comparison=results.comparison(), determinism=REPEATS
)
FASTER = Speedup(2.0, 1.9, 2.1, "faster")
COMPILED = BaselineResult(Baseline.COMPILE, 0.1, Speedup(1.2, 1.1, 1.3, "faster"))
NO_FASTER = replace(COMPILED, speedup=Speedup(0.8, 0.7, 0.9, "slower"))
NOT_COMPILED = BaselineResult(Baseline.COMPILE, code="compile_error", message="it cannot")
COARSE = {"code": "lower_precision", "message": "output 1 looks like bfloat16", "data": {}}
KEPT_BUFFERS = {"code": "buffers_not_updated", "message": "it keeps running_mean", "data": {}}
FIT = Report(OUTCOME, {}, Outcome(Status.PASSED, "torch"), FASTER, baselines=[COMPILED.to_dict()])


def with_comparison(**more: Any) -> Report:
    return replace(FIT, outcome=replace(OUTCOME, comparison=replace(results.comparison(), **more)))


def with_outcome(**more: Any) -> Report:
    return replace(FIT, outcome=replace(OUTCOME, **more))


def with_bits(found: Determinism | None) -> Report:
    return with_outcome(determinism=found)


def test_a_fit_kernel_is_told_so_in_a_sentence() -> None:
    found = qualification(REQUEST, FIT)
    assert found["fit"] and {check["result"] for check in found["checks"]} == {"passed"}
    assert found["sentence"].startswith("Fit to be merged: right in 208 compared calls; ")
    assert "2 times as fast as the reference" in found["sentence"] and "the same bits every time" in found["sentence"]


@pytest.mark.parametrize(
    ("report", "name", "says"),
    [
        (with_comparison(weak_reference=[Flag(FlagCode.FIXED_OUTPUTS_PASS, "")]), "meaningful", "fixed beforehand"),
        (
            with_comparison(robustness=Robustness([RobustnessFailure("skewed", Status.WRONG_RESULT, "")])),
            "beyond_the_task",
            "skewed",
        ),
        (with_bits(replace(REPEATS, outputs=[OutputRepeats(10, 3, 1e-6, 1)])), "same_bits", "other bits"),
        (
            replace(FIT, speedup=Speedup(1.0, 0.9, 1.1, "not_distinguishable")),
            "faster",
            "not shown to be faster than the reference",
        ),
        (
            replace(FIT, baselines=[NO_FASTER.to_dict()]),
            "faster_than_compiled",
            "slower than the reference under torch.compile (0.8 times",
        ),
    ],
)
def test_each_failure_is_the_reason(report: Report, name: str, says: str) -> None:
    found = qualification(REQUEST, report)
    assert [check["name"] for check in found["checks"] if check["result"] == "failed"] == [name]
    assert not found["fit"] and found["sentence"].startswith("Not fit to be merged: ") and says in found["sentence"]


def test_a_wrong_kernel_is_unfit_for_that_alone() -> None:
    wrong = replace(FIT, outcome=Outcome(Status.WRONG_RESULT, "torch", True, message="Outputs differ"), speedup=None)
    found = qualification(REQUEST, replace(wrong, baselines=[]))
    assert found["sentence"] == "Not fit to be merged: wrong result (Outputs differ)."


def test_a_bound_is_told_as_one() -> None:
    found = qualification(REQUEST, replace(FIT, speedup=Speedup(1.8, 1.8, float("inf"), "faster")))
    assert found["fit"] and "; at least 1.8 times as fast as the reference; " in found["sentence"]


def test_a_bound_that_shows_nothing_has_no_infinity() -> None:
    bound = Speedup(0.4, 0.4, float("inf"), "not_distinguishable")
    sentence = qualification(REQUEST, replace(FIT, speedup=bound))["sentence"]
    assert "not shown to be faster than the reference (only a bound is known: at least 0.4 times)" in sentence


def test_without_a_speedup_it_is_not_shown_to_be_fit() -> None:
    found = qualification(REQUEST, replace(FIT, speedup=None))
    assert not found["fit"] and "too fast to time here" in found["sentence"]


def test_an_interpreters_time_makes_no_kernel_slow() -> None:
    timing = replace(results.timing(0.1), flags=[Flag(FlagCode.INTERPRETED, "")])
    slow = Speedup(0.02, 0.0, 0.02, "slower")
    report = replace(with_outcome(timing=timing), speedup=slow, baselines=[NO_FASTER.to_dict()])
    found = qualification(REQUEST, report)
    assert {check["name"] for check in found["checks"] if check["result"] == "unknown"} == {
        "faster",
        "faster_than_compiled",
    }
    assert not found["fit"] and "slower" not in found["sentence"]
    assert "whether it is faster than the reference is not known (an interpreter ran" in found["sentence"]


@pytest.mark.parametrize(
    ("report", "name", "result"),
    [
        (with_bits(replace(REPEATS, batch=Batch(BatchVerdict.VARIANT, 8, 3))), "batch_invariant", "noted"),
        (with_comparison(precision_check={"finding": COARSE}), "same_work", "noted"),
        (with_outcome(inputs={"weight_findings": [KEPT_BUFFERS]}), "same_work", "noted"),
        (with_outcome(timing=results.timing(0.1, Flag.of(FlagCode.INPUTS_CHANGED_DIFFERENTLY))), "same_work", "noted"),
        (with_bits(None), "same_bits", "unknown"),
        (replace(FIT, baselines=[NOT_COMPILED.to_dict()]), "faster_than_compiled", "unknown"),
    ],
)
def test_what_is_noted_or_unknown_leaves_it_fit(report: Report, name: str, result: str) -> None:
    found = qualification(REQUEST, report)
    assert found["fit"] and {check["name"]: check["result"] for check in found["checks"]}[name] == result
    noted = {check["message"] for check in found["checks"] if check["result"] == "noted"}
    assert [f" Note: {message}." in found["sentence"] for message in noted] == [True] * (result == "noted")


def test_what_is_unknown_has_a_reason() -> None:
    untested = replace(REPEATS, untested="too large", batch=Batch(BatchVerdict.UNTESTED, reason="no rows"))
    checks = {check["name"]: check["message"] for check in qualification(REQUEST, with_bits(untested))["checks"]}
    assert checks["same_bits"] == "whether equal inputs give equal bits is not known (too large)"
    assert checks["batch_invariant"] == "whether rows depend on their batch is not known (no rows)"


def test_at_quick_inputs_beyond_the_task_are_unknown() -> None:
    found = qualification(replace(REQUEST, budget=Budget.QUICK), FIT)
    assert {check["name"]: check["result"] for check in found["checks"]}["beyond_the_task"] == "unknown"


def test_a_whole_job(worker: WorkerContext) -> None:
    body = "for _ in range(40): x = x.cos()\n        return x\n"
    source = f"class Model(nn.Module):\n    def forward(self, x):\n        {body}"
    inputs = "def get_inputs():\n    return [torch.randn(256, 256)]\n"
    wire = {
        "kernel": forward("for _ in range(10): x = x.sin()\n        return x"),
        "reference": kernel(source + inputs),
    }
    common = {"num_trials": 10, "timeout": 120, "qualify": True, "determinism": True, "strictness": "robust"}
    wrong = run(Request.from_wire(wire | common), worker).body("j")
    assert (wrong["verdict"], wrong["qualification"]["fit"]) == ("wrong_result", False)
    right = wire | common | {"kernel": kernel(source.replace("Model(", "ModelNew("))}
    found = {
        check["name"]: check for check in run(Request.from_wire(right), worker).body("j")["qualification"]["checks"]
    }
    assert found["right"]["result"] == found["same_bits"]["result"] == found["beyond_the_task"]["result"] == "passed"
    assert found["faster_than_compiled"]["result"] == "unknown", "the request named no baselines"
