"""Whether a kernel is fit to be merged: the checks of `/qualify`, and one sentence.

Each check is a function of the report. A check that the request switched off, or that could not run, is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.determinism import BatchVerdict
from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Report, Speedup, Status, first_line
from domain.speed.baseline import Baseline

LESS_WORK = {
    FlagCode.LOWER_PRECISION,
    FlagCode.UNEXPLAINED_ERROR,
    FlagCode.BUFFERS_NOT_UPDATED,
    FlagCode.INPUTS_CHANGED_DIFFERENTLY,
    FlagCode.OUTPUT_IS_INPUT_VIEW,
    FlagCode.GRADIENTS_NOT_COMPARED,
}
"""Codes of findings that a kernel does less than the reference, though its outputs are within tolerance."""
NOT_ON_A_GPU = "an interpreter ran it on the CPU: send it to a worker with a GPU"


class CheckResult(StrEnum):
    """FAILED makes a kernel unfit. NOTED is worth knowing and does not; UNKNOWN makes it unfit if it must be shown."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """One check; `message` goes on in a sentence. `required`: the kernel is unfit unless it passes."""

    name: str
    result: CheckResult
    message: str
    required: bool = False


def qualification(request: Request, report: Report) -> dict[str, Any]:
    """Whether the kernel is fit, the sentence, and every check; JSON-ready."""
    checks = [check(request, report) for check in CHECKS]
    against = [
        check
        for check in checks
        if check.result is CheckResult.FAILED or (check.required and check.result is not CheckResult.PASSED)
    ]
    if any(check.name == "right" for check in against):
        against = [check for check in against if check.name == "right"]  # The others follow from it.
    listed = against or [check for check in checks if check.result is CheckResult.PASSED]
    noted = [check.message for check in checks if check.result is CheckResult.NOTED]
    sentence = f"{'Not fit' if against else 'Fit'} to be merged: {'; '.join(check.message for check in listed)}."
    return {
        "fit": not against,
        "sentence": sentence + (f" Note: {'; '.join(noted)}." if noted else ""),
        "checks": [
            {"name": check.name, "result": check.result.value, "message": check.message, "required": check.required}
            for check in checks
        ],
    }


def _right(request: Request, report: Report) -> Check:
    outcome, comparison = report.outcome, report.outcome.comparison
    if outcome.status is not Status.PASSED or comparison is None:
        why = first_line(outcome.message) or outcome.status.value
        return Check("right", CheckResult.FAILED, f"{outcome.status.value.replace('_', ' ')} ({why})", required=True)
    return Check("right", CheckResult.PASSED, f"right in {comparison.calls} compared calls", required=True)


def _meaningful(request: Request, report: Report) -> Check:
    comparison = report.outcome.comparison
    weak = (
        [flag for flag in comparison.weak_reference if flag.code is FlagCode.FIXED_OUTPUTS_PASS] if comparison else []
    )
    if weak:
        return Check("meaningful", CheckResult.FAILED, "outputs fixed beforehand would pass this reference too")
    return Check(
        "meaningful", CheckResult.PASSED if comparison else CheckResult.UNKNOWN, "the reference tells wrong outputs"
    )


def _beyond_the_task(request: Request, report: Report) -> Check:
    comparison, name = report.outcome.comparison, "beyond_the_task"
    if comparison is not None and comparison.robustness.failed:
        failed = ", ".join(failure.distribution for failure in comparison.robustness.failed)
        return Check(name, CheckResult.FAILED, f"it fails on inputs beyond the task's ({failed})")
    if report.outcome.status is not Status.PASSED or not request.thorough:
        return Check(name, CheckResult.UNKNOWN, "inputs beyond the task's were not tried")
    return Check(name, CheckResult.PASSED, "on inputs beyond the task's too")


def _same_work(request: Request, report: Report) -> Check:
    comparison, name = report.outcome.comparison, "same_work"
    precision = (comparison.precision_check or {}).get("finding") if comparison is not None else None
    timing = report.outcome.timing
    findings = [precision, *report.outcome.inputs.get("weight_findings", ())]
    less = [str(flag["message"]) for flag in findings if flag is not None and flag["code"] in LESS_WORK]
    less += [flag.message for flag in (timing.flags if timing is not None else ()) if flag.code in LESS_WORK]
    if less:
        return Check(name, CheckResult.NOTED, "; ".join(less))
    if report.outcome.status is not Status.PASSED or not request.thorough:
        return Check(name, CheckResult.UNKNOWN, "its precision was not measured")
    return Check(name, CheckResult.PASSED, "no lower precision and no work left out was found")


def _same_bits(request: Request, report: Report) -> Check:
    repeated, name = report.outcome.determinism, "same_bits"
    if repeated is None or repeated.untested or not repeated.outputs:
        return Check(
            name, CheckResult.UNKNOWN, _unknown("equal inputs give equal bits", repeated.untested if repeated else None)
        )
    if all(output.repeats for output in repeated.outputs):
        where = "one process" if repeated.processes == 1 else f"{repeated.processes} processes"
        return Check(name, CheckResult.PASSED, f"the same bits every time, in {where}")
    return Check(name, CheckResult.FAILED, "equal inputs give other bits from call to call or from process to process")


def _unknown(what: str, why: str | None) -> str:
    return f"whether {what} is not known" + (f" ({why})" if why else "")


def _batch_invariant(request: Request, report: Report) -> Check:
    repeated, name = report.outcome.determinism, "batch_invariant"
    if repeated is None or repeated.batch.verdict is BatchVerdict.UNTESTED:
        return Check(
            name,
            CheckResult.UNKNOWN,
            _unknown("rows depend on their batch", repeated.batch.reason if repeated else None),
        )
    if repeated.batch.verdict is BatchVerdict.INVARIANT:
        return Check(name, CheckResult.PASSED, "rows do not depend on their batch")
    return Check(name, CheckResult.NOTED, "bits of a row depend on the other rows of its batch")


def _interpreted(report: Report) -> bool:
    timing = report.outcome.timing
    return timing is not None and any(flag.code is FlagCode.INTERPRETED for flag in timing.flags)


def _faster(request: Request, report: Report) -> Check:
    if _interpreted(report):
        unknown = _unknown("it is faster than the reference", NOT_ON_A_GPU)
        return Check("faster", CheckResult.UNKNOWN, unknown, required=True)
    if report.speedup is None:
        return Check("faster", CheckResult.UNKNOWN, report.speedup_unavailable_reason(), required=True)
    return _compared("faster", report.speedup, "the reference", required=True)


def _faster_than_compiled(request: Request, report: Report) -> Check:
    name, other = "faster_than_compiled", "the reference under torch.compile"
    if _interpreted(report):
        return Check(name, CheckResult.UNKNOWN, _unknown(f"it is faster than {other}", NOT_ON_A_GPU))
    compiled = next((one for one in report.baselines if one["name"] == Baseline.COMPILE), None)
    if compiled is None or compiled["speedup"] is None:
        why = compiled["unavailable"]["message"] if compiled else "it was not timed"
        return Check(name, CheckResult.UNKNOWN, f"whether it is faster than {other} is not known ({why})")
    return _compared(name, Speedup(**compiled["speedup"]), other)


def _compared(name: str, speedup: Speedup, other: str, *, required: bool = False) -> Check:
    if speedup.verdict == "faster" and math.isinf(speedup.ci_high):
        return Check(name, CheckResult.PASSED, f"at least {speedup.ci_low:.3g} times as fast as {other}", required)
    if math.isinf(speedup.ci_high):
        bound = f"only a bound is known: at least {speedup.ci_low:.3g} times"
        return Check(name, CheckResult.FAILED, f"not shown to be faster than {other} ({bound})", required)
    interval = f"95 % interval {speedup.ci_low:.3g} to {speedup.ci_high:.3g}"
    if speedup.verdict == "faster":
        return Check(name, CheckResult.PASSED, f"{speedup.ratio:.3g} times as fast as {other} ({interval})", required)
    how = "slower" if speedup.verdict == "slower" else "not shown to be faster"
    return Check(name, CheckResult.FAILED, f"{how} than {other} ({speedup.ratio:.3g} times, {interval})", required)


CHECKS: tuple[Callable[[Request, Report], Check], ...] = (
    _right, _meaningful, _beyond_the_task, _same_work, _same_bits, _batch_invariant, _faster, _faster_than_compiled,
)  # fmt: skip
"""In the order in which they are told. A check of further cases or of gradients is one more function here."""
