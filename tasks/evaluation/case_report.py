"""Makes the report of a job with cases: one verdict about all of them, and geometric means of their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from domain.cases.case_result import CaseResult, CaseResults
from domain.fault import KernelFault
from domain.flags.flag import Flag
from domain.result import Comparison, Outcome, Report, Robustness, Status, Timing
from profiling.results.case_mean import mean_speedup, mean_timing
from profiling.results.multi_process import pooled_speedup, pooled_timing
from tasks.evaluation.cases import JobCases
from tasks.runtime.kernel_run import KernelRun

KEPT_BACK = "kept back: the job has hidden cases"
WRONG_IN_HIDDEN = "wrong in {wrong} of {count} hidden cases; it is right in every visible one"


def with_cases(report: Report, cases: JobCases, kernel_runs: Sequence[KernelRun]) -> Report:
    results = cases.results(report.speedup)
    candidate, reference = kernel_runs[-1], kernel_runs[-1].reference
    fault = candidate.fault or (reference.fault if reference is not None else None)
    outcome = report.outcome
    if fault is not None and (candidate.fault is not None or results.failed is None):
        outcome = replace(outcome, message=_in_case(outcome.message, cases, fault))
        results = _with_message(results, cases, outcome.message)
    elif results.failed is not None:
        outcome = _wrong(outcome, results)
    elif outcome.comparison is not None:
        compared = [_with_name(one.comparison, one.case.name) for one in results.visible if one.comparison is not None]
        outcome = replace(outcome, comparison=merged_comparison(compared))
    timed = results.timed
    timings = [one.timing for one in timed if one.timing is not None]
    references = [one.reference_timing for one in timed if one.reference_timing is not None]
    names = [one.case.name for one in timed]
    report = replace(
        report,
        outcome=replace(outcome, timing=_mean(timings, names)),
        reference=replace(report.reference, timing=_mean(references, names)) if report.reference is not None else None,
        speedup=mean_speedup([one.speedup for one in timed]) if timings else None,
        cases=results,
    )
    return _without_texts(report) if cases.hidden_began else report


def pooled_cases(each: Sequence[CaseResults | None]) -> CaseResults | None:
    """The results of several processes: of each case the mean time and speed-up, and the first process's comparison."""
    present = [results for results in each if results is not None]
    if not present:
        return None
    pairs = zip(*(results.results for results in present), strict=True)
    return CaseResults(tuple(_pooled(of_case) for of_case in pairs))


def _pooled(each: Sequence[CaseResult]) -> CaseResult:
    timings = [one.timing for one in each if one.timing is not None]
    references = [one.reference_timing for one in each if one.reference_timing is not None]
    if len(timings) < len(each):
        return each[0]
    return replace(
        each[0],
        timing=pooled_timing(timings),
        reference_timing=pooled_timing(references) if references else None,
        speedup=pooled_speedup([one.speedup for one in each], references, timings) if references else None,
        checked=all(one.checked for one in each),
    )


def _mean(timings: Sequence[Timing], names: Sequence[str]) -> Timing | None:
    """The geometric mean; None unless every case to time has one."""
    return mean_timing(timings, names) if 0 < len(timings) == len(names) else None


def _in_case(message: str | None, cases: JobCases, fault: KernelFault) -> str:
    label = cases.fault_case.label
    if cases.hidden_began:
        return f"{fault.status.value.replace('_', ' ')} in {label} (message {KEPT_BACK})"
    return f"{label}: {message}"


def _with_message(results: CaseResults, cases: JobCases, message: str | None) -> CaseResults:
    changed = [
        replace(one, message=message) if one.case is cases.fault_case and one.status is not Status.PASSED else one
        for one in results.results
    ]
    return CaseResults(tuple(changed))


def _wrong(outcome: Outcome, results: CaseResults) -> Outcome:
    """The outcome of a kernel that is wrong in a case: the first visible one, if there is any."""
    failed, compared = results.failed, [one.comparison for one in results.visible if one.comparison is not None]
    if failed is None or failed.comparison is None:
        return outcome
    if failed.case.hidden:
        hidden = [one for one in results.results if one.case.hidden]
        wrong = sum(one.status is Status.WRONG_RESULT for one in hidden)
        message = WRONG_IN_HIDDEN.format(wrong=wrong, count=len(hidden))
        comparison = replace(compared[0], passed=False, message=message)
    else:
        wrong_names = [one.case.name for one in results.visible if one.status is Status.WRONG_RESULT]
        more = f" (wrong in {len(wrong_names)} of {len(results.visible)} visible cases)" if len(wrong_names) > 1 else ""
        message = f"{failed.case.label}: {failed.comparison.message}{more}"
        comparison = replace(failed.comparison, message=message)
    return replace(outcome, status=Status.WRONG_RESULT, message=message, log="", comparison=comparison)


def merged_comparison(each: Sequence[Comparison]) -> Comparison:
    """One comparison over several cases or processes; the kernel was right in each."""
    elements = sum(one.element_count for one in each)
    failures = {failure.distribution: failure for one in reversed(each) for failure in one.robustness.failed}
    return replace(
        each[0],
        calls=sum(one.calls for one in each),
        calls_passed=sum(one.calls_passed for one in each),
        max_abs_diff=max(one.max_abs_diff for one in each),
        max_rel_diff=max(one.max_rel_diff for one in each),
        mean_abs_diff=sum(one.mean_abs_diff * one.element_count for one in each) / max(elements, 1),
        mismatch_count=sum(one.mismatch_count for one in each),
        element_count=elements,
        weak_reference=list(dict.fromkeys(flag for one in each for flag in one.weak_reference)),
        layout=list(dict.fromkeys(flag for one in each for flag in one.layout)),
        robustness=Robustness(list(failures.values())),
        beyond_tolerance=[flag for one in each for flag in one.beyond_tolerance],
    )


def _with_name(comparison: Comparison, name: str) -> Comparison:
    """The comparison, whose remarks about the reference and single elements say in which case they hold."""

    def named(flags: list[Flag]) -> list[Flag]:
        return [replace(flag, message=f"{flag.message} (in case {name!r})") for flag in flags]

    weak, beyond = named(comparison.weak_reference), named(comparison.beyond_tolerance)
    return replace(comparison, weak_reference=weak, beyond_tolerance=beyond)


def _without_texts(report: Report) -> Report:
    """The report without what a kernel wrote after it may have seen a hidden case."""
    reference = _kept_back(report.reference) if report.reference is not None else None
    return replace(report, outcome=_kept_back(report.outcome), reference=reference)


def _kept_back(outcome: Outcome) -> Outcome:
    build: dict[str, Any] = {name: value for name, value in outcome.build.items() if name != "compiled_at_run_time"}
    comparison = outcome.comparison
    if comparison is not None:
        failed = [
            replace(one, message=KEPT_BACK, first_mismatch=None, mismatch_count=0)
            for one in comparison.robustness.failed
        ]
        comparison = replace(comparison, robustness=Robustness(failed))
    output = f"({KEPT_BACK})" if outcome.output else ""
    return replace(outcome, log="", output=output, build=build, comparison=comparison)
