"""A job judged in several processes, one after the other: what a kernel takes differs from each to the next (ADR 38).

In each the job is judged in full, on inputs of its own. A kernel that is wrong in one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.request import Request
from domain.result import Comparison, Outcome, Report, Status, Timing
from profiling.pooled import pooled_speedup, pooled_timing
from tasks.streams import Queues, chosen, judged

TIMES_AS_LONG = 1.5
"""As the longest of the processes so far has taken, has to be left of the job's time for one more."""
RESERVE_S = 1.0
IN_FEWER = "judged in {done} processes and not in {asked}, as the timeout was near: its interval is the wider for it"
ELSEWHERE = "{message} (in the {done} processes before this one it passed)"


def judged_in_processes(run: Callable[[Request, Queues], Report], request: Request) -> Report:
    """What `run` gives for as many processes as the request is due, each time anew from its builds on, put together.

    What is asked for beside the verdict and the times is done in the first alone.
    """

    def in_one(asked: Request, queues: Queues) -> tuple[Report, Queues]:
        return judged(lambda now: run(asked, now), queues)

    report, queues = in_one(request, chosen(request.kernels.values()))
    reports, longest_s = [report], report.environment["device_seconds"]
    lighter = replace(request, profile=False, artifacts=(), device_metrics=None, sanitize=False)
    while len(reports) < request.processes and _timed(reports[-1]):
        spent_s = reports[-1].environment["device_seconds"]
        if request.timeout - spent_s < TIMES_AS_LONG * longest_s + RESERVE_S:
            return _with_flag(_together(reports), IN_FEWER.format(done=len(reports), asked=request.processes))
        report, queues = in_one(lighter, replace(queues, spent_s=spent_s, held_s=spent_s, settled=True))
        reports.append(report)
        longest_s = max(longest_s, report.environment["device_seconds"] - spent_s)
    return _together(reports)


def _timed(report: Report) -> bool:
    sides = [report.outcome] if report.reference is None else [report.reference, report.outcome]
    return all(side.status is Status.PASSED and side.timing is not None for side in sides)


def _together(reports: Sequence[Report]) -> Report:
    """One report; the last one's verdict, where the kernel did not pass there."""
    first, last = reports[0], reports[-1]
    if len(reports) == 1:
        return first
    spent = {"device_seconds": last.environment["device_seconds"]}
    if not _timed(last):
        return replace(
            last,
            outcome=_failed(last.outcome, first.outcome, len(reports) - 1),
            device_metrics=first.device_metrics,
            environment=last.environment | spent,
        )
    references = [report.reference for report in reports if report.reference is not None]
    return replace(
        first,
        outcome=_pooled([report.outcome for report in reports]),
        reference=_pooled(references) if references else None,
        speedup=pooled_speedup([report.speedup for report in reports]) if references else None,
        environment=first.environment | spent,
    )


def _failed(outcome: Outcome, first: Outcome, before: int) -> Outcome:
    """What it did in the last process, with what only the first was asked for."""
    told = ELSEWHERE.format(message=outcome.message, done=before) if outcome.message else None
    return replace(
        outcome,
        message=told,
        launches=first.launches,
        listings=first.listings,
        profile=first.profile,
        sanitizer=first.sanitizer,
    )


def _pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """Of the same kernel. Its place beneath the roofline is that of the process whose time is nearest to the mean."""
    timings = [outcome.timing for outcome in outcomes if outcome.timing is not None]
    timing = pooled_timing(timings)
    nearest = min(outcomes, key=lambda one: _apart(one.timing, timing))
    comparisons = [outcome.comparison for outcome in outcomes if outcome.comparison is not None]
    return replace(
        outcomes[0],
        timing=timing,
        roofline=nearest.roofline,
        comparison=_all_calls(comparisons) if comparisons else None,
    )


def _apart(timing: Timing | None, pooled: Timing) -> float:
    return abs(timing.trusted_ms - pooled.trusted_ms) if timing is not None else float("inf")


def _all_calls(comparisons: Sequence[Comparison]) -> Comparison:
    """Of all processes, in each of which every call was right."""
    elements = sum(one.element_count for one in comparisons)
    weighted = sum(one.mean_abs_diff * one.element_count for one in comparisons)
    return replace(
        comparisons[0],
        calls=sum(one.calls for one in comparisons),
        calls_passed=sum(one.calls_passed for one in comparisons),
        max_abs_diff=max(one.max_abs_diff for one in comparisons),
        max_rel_diff=max(one.max_rel_diff for one in comparisons),
        mean_abs_diff=weighted / elements if elements else 0.0,
        mismatch_count=sum(one.mismatch_count for one in comparisons),
        element_count=elements,
        weak_reference=list(dict.fromkeys(said for one in comparisons for said in one.weak_reference)),
    )


def _with_flag(report: Report, flag: str) -> Report:
    timing = report.outcome.timing
    if timing is None:
        return report
    return replace(report, outcome=replace(report.outcome, timing=replace(timing, flags=[*timing.flags, flag])))
