"""A job judged in several processes, one after the other: what a kernel takes differs from each to the next (ADR 38).

In each the job is judged in full, on inputs of its own. A kernel that is wrong in one of them is wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from domain.flags import TIMEOUT_NEAR
from domain.request import Request
from domain.result import Comparison, Outcome, Report, Status, Timing
from profiling.results.multi_process import pooled_speedup, pooled_timing
from profiling.roofline.intensity import position_at
from profiling.stats.stopping_rule import Stop
from tasks.runtime.build_stage import OFF
from tasks.runtime.stream_isolation import Queues, initial_queues, run_until_final

TIMES_AS_LONG = 3.0
"""As the longest of the processes so far has taken, has to be left of the job's time for one more: what takes even
longer does so by its own doing."""
RESERVE_S = 1.0
DEVICE_S, FEWEST_PAIRS = 1.9, 3
"""For so many seconds a comparison may judge on the device, which with the end of its runners is 2 s, as far as that is
known when one more pair of processes is due, from so many pairs on: these find 97 % of twins that take 2 % longer where
four find 99.8 (docs/adr/0038)."""
IN_FEWER = f"judged in {{done}} processes and not in {{asked}}, as {TIMEOUT_NEAR}: its interval is the wider for it"
ELSEWHERE = "{message} (in the {done} processes before this one it passed)"


def judged_in_processes(run: Callable[[Request, Queues], Report], request: Request) -> Report:
    """What `run` gives for as many processes as the request is due, each time anew from its builds on, put together.

    What is asked for beside the verdict and the times is done in the first alone. Answers are tried otherwise in that
    and in one more.
    """
    report, queues = run_until_final(partial(run, request), initial_queues(request.kernels.values()))
    reports = [report]
    lighter = replace(request, profile=False, artifacts=(), device_metrics=None, sanitize=False)
    # A kernel that is right on other inputs in the first process only must not know in which they come again.
    fewest = request.processes if request.reference is None else min(request.processes, FEWEST_PAIRS)
    tries_again = 1 + secrets.randbelow(max(fewest - 1, 1))
    while len(reports) < request.processes and _timed(report):
        if not _in_time(reports, request):
            return _with_flag(_together(reports), IN_FEWER.format(done=len(reports), asked=request.processes))
        if request.reference is not None and _has_cost_enough(reports):
            return _stopped_by_device_time(_together(reports))
        held_s = report.environment["device_seconds"]
        queues = replace(queues, spent_s=report.spent_s, held_s=held_s, final=True)
        report, queues = run_until_final(partial(run, replace(lighter, tried=len(reports) != tries_again)), queues)
        reports.append(report)
    return _together(reports)


def _in_time(reports: Sequence[Report], request: Request) -> bool:
    """Whether the job's time allows one more, by what those so far have taken."""
    spent = [0.0, *(report.spent_s for report in reports)]
    longest_s = max(after - before for before, after in pairwise(spent))
    to_run_s = request.timeout - spent[-1] - RESERVE_S
    to_build_s = request.build_seconds - sum(report.built_s for report in reports)
    return to_run_s >= TIMES_AS_LONG * longest_s and to_build_s >= TIMES_AS_LONG * _next_build_s(reports)


def _has_cost_enough(reports: Sequence[Report]) -> bool:
    """Whether one more pair would hold the device for longer than a comparison may, by the longest but the first.

    Without what tools took in that, and what was waited for others.
    """
    if len(reports) < FEWEST_PAIRS:
        return False
    spent = [report.spent_s for report in reports]
    return spent[-1] + max(after - before for before, after in pairwise(spent)) > DEVICE_S


def _next_build_s(reports: Sequence[Report]) -> float:
    """What building once more may take: nothing worth mention where the first build is kept, as one does that is."""
    sides = [side for side in (reports[0].outcome, reports[0].reference) if side is not None]
    kept = all(side.build.get("compile_cache") != OFF and not side.build.get("deferred") for side in sides)
    return 0.0 if kept and len(reports) == 1 else reports[-1].built_s


def _timed(report: Report) -> bool:
    sides = [report.outcome] if report.reference is None else [report.reference, report.outcome]
    return all(side.status is Status.PASSED and side.timing is not None for side in sides)


def _together(reports: Sequence[Report]) -> Report:
    """One report; the last one's verdict, where the kernel did not pass there."""
    first, last = reports[0], reports[-1]
    if len(reports) == 1:
        return first
    of_all: dict[str, Any] = {"device_seconds": last.environment["device_seconds"]}
    of_all |= {"window_seconds": sum(report.environment.get("window_seconds", 0.0) for report in reports)}
    found = [report.environment.get("card_errors") for report in reports]
    if all(isinstance(errors, list) for errors in found):
        of_all["card_errors"] = [error for errors in found for error in errors or ()]
    if not _timed(last):
        return replace(
            last,
            outcome=_failed(last.outcome, first.outcome, len(reports) - 1),
            device_metrics=first.device_metrics,
            environment=last.environment | of_all,
        )
    outcomes = [report.outcome for report in reports]
    references = [report.reference for report in reports if report.reference is not None]
    ratios = [report.speedup for report in reports]
    return replace(
        first,
        outcome=_pooled(outcomes),
        reference=_pooled(references) if references else None,
        speedup=pooled_speedup(ratios, _timings(references), _timings(outcomes)) if references else None,
        environment=first.environment | of_all,
    )


def _timings(outcomes: Sequence[Outcome]) -> list[Timing]:
    return [outcome.timing for outcome in outcomes if outcome.timing is not None]


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
    """Of the same kernel; what is not of its time or its answers, from the first."""
    timings = [outcome.timing for outcome in outcomes if outcome.timing is not None]
    timing = pooled_timing(timings)
    comparisons = [outcome.comparison for outcome in outcomes if outcome.comparison is not None]
    return replace(
        outcomes[0],
        timing=timing,
        roofline=position_at(outcomes[0].roofline, timings[0].trusted_ms, timing.trusted_ms),
        comparison=_all_calls(comparisons) if comparisons else None,
    )


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


def _stopped_by_device_time(report: Report) -> Report:
    """The same, whose times say why there were no more processes."""
    outcome = _stopped(report.outcome)
    return replace(report, outcome=outcome, reference=_stopped(report.reference) if report.reference else None)


def _stopped(outcome: Outcome) -> Outcome:
    timing = outcome.timing
    if timing is None or timing.stopped_by == Stop.TIMEOUT:
        return outcome
    return replace(outcome, timing=replace(timing, stopped_by=Stop.DEVICE_TIME.value))


def _with_flag(report: Report, flag: str) -> Report:
    timing = report.outcome.timing
    if timing is None:
        return report
    return replace(report, outcome=replace(report.outcome, timing=replace(timing, flags=[*timing.flags, flag])))
