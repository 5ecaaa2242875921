"""Evaluates a job in several processes, one after the other: a kernel's time differs between processes (ADR 21).

Each process evaluates the job in full, on inputs of its own. A kernel that is wrong in one of them is wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.request import Request
from domain.result import DeviceReport, Outcome, Report, Status, Timing
from domain.speed.headroom import headroom
from profiling.results.multi_process import pooled_speedup, pooled_timing
from profiling.roofline.intensity import position_at
from profiling.stats.stopping_rule import Stop
from tasks.evaluation.case_report import merged_comparison, pooled_cases
from tasks.runtime.build_stage import OFF
from tasks.runtime.stream_isolation import Queues, initial_queues, run_until_final
from validation.evidence.determinism import merged

TIME_RESERVE_FACTOR = 3.0
"""One more process starts only if this many times the duration of the longest one is left of the job's time. A kernel
that takes even longer does so by its own doing."""
RESERVE_S = 1.0
DEVICE_S, FEWEST_PAIRS = 1.9, 3
"""Device seconds after which a comparison starts no more pairs of processes, and the minimum number of pairs. With the
end of its runners that is 2 s. Three pairs find 97 % of twins that take 2 % longer, four 99.8 % (docs/adr/0021)."""
ELSEWHERE = "{message} (in the {done} processes before this one it passed)"


def evaluate_in_processes(run: Callable[[Request, Queues], Report], request: Request) -> Report:
    """Call `run` for as many processes as the request is due, each time with new builds, and merge the reports.

    Only the first process does what the request asks for beside verdict and times. The first and one more process run
    the robustness checks.
    """
    if request.determinism:
        request = replace(request, determinism_seed=secrets.randbits(63))
    report, queues = run_until_final(partial(run, request), initial_queues(request.kernels.values()))
    reports = [report]
    if report.cases is not None:  # Later processes judge the same ones.
        request = replace(request, cases=tuple(result.case for result in report.cases.results))
    lighter = replace(request, profile=False, artifacts=(), device_metrics=None, sanitize=False)
    # The second process is random: a kernel must not know in which process the check's inputs come again.
    fewest = request.processes if request.reference is None else min(request.processes, FEWEST_PAIRS)
    tries_again = 1 + secrets.randbelow(max(fewest - 1, 1))
    while len(reports) < request.processes and _is_timed(report):
        if not _time_left_for_another(reports, request):
            counts = {"processes": len(reports), "requested_processes": request.processes}
            return _with_flag(_merge(reports), Flag.of(FlagCode.FEWER_PROCESSES, **counts))
        if request.reference is not None and _device_time_used(reports):
            return _stopped_by_device_time(_merge(reports))
        queues = replace(queues, spent_s=report.spent_s, held_s=report.device.held_s, final=True)
        report, queues = run_until_final(partial(run, replace(lighter, tried=len(reports) != tries_again)), queues)
        reports.append(report)
    return _merge(reports)


def _time_left_for_another(reports: Sequence[Report], request: Request) -> bool:
    """Whether the job's time allows one more process, judged by the durations of the previous ones."""
    spent = [0.0, *(report.spent_s for report in reports)]
    longest_s = max(after - before for before, after in pairwise(spent))
    to_run_s = request.timeout - spent[-1] - RESERVE_S
    to_build_s = request.build_seconds - sum(report.built_s for report in reports)
    return to_run_s >= TIME_RESERVE_FACTOR * longest_s and to_build_s >= TIME_RESERVE_FACTOR * _next_build_s(reports)


def _device_time_used(reports: Sequence[Report]) -> bool:
    """Whether one more pair could exceed the device time of a comparison, judged by the longest pair but the first.

    The durations exclude the tools of the first pair and waiting for other jobs.
    """
    if len(reports) < FEWEST_PAIRS:
        return False
    spent = [report.spent_s for report in reports]
    return spent[-1] + max(after - before for before, after in pairwise(spent)) > DEVICE_S


def _next_build_s(reports: Sequence[Report]) -> float:
    """Estimated seconds of another build: about zero if the build cache holds the first build."""
    sides = [side for side in (reports[0].outcome, reports[0].reference) if side is not None]
    is_cached = all(side.build.get("compile_cache") != OFF and not side.build.get("deferred") for side in sides)
    return 0.0 if is_cached and len(reports) == 1 else reports[-1].built_s


def _is_timed(report: Report) -> bool:
    sides = [report.outcome] if report.reference is None else [report.reference, report.outcome]
    return all(side.status is Status.PASSED and side.timing is not None for side in sides)


def _merge(reports: Sequence[Report]) -> Report:
    """Merge the reports. The verdict is that of the last process if the kernel did not pass there."""
    first, last = reports[0], reports[-1]
    if len(reports) == 1:
        return first
    if not _is_timed(last):
        return replace(
            last,
            outcome=_failed(last.outcome, first.outcome, len(reports) - 1),
            device_metrics=first.device_metrics,
            device=_device(last, reports),
        )
    outcomes = [report.outcome for report in reports]
    references = [report.reference for report in reports if report.reference is not None]
    ratios = [report.speedup for report in reports]
    return replace(
        first,
        outcome=_with_forward_speedup(_pooled(outcomes), outcomes, references),
        reference=_pooled(references) if references else None,
        speedup=pooled_speedup(ratios, _timings(references), _timings(outcomes)) if references else None,
        device=_device(first, reports),
        cases=pooled_cases([report.cases for report in reports]),
    )


def _device(shown: Report, reports: Sequence[Report]) -> DeviceReport:
    """The device report of `shown`, with the times of all processes, and the card's errors if they are known in all."""
    windows_s = sum(report.device.windows_s for report in reports)
    device = replace(shown.device, held_s=reports[-1].device.held_s, windows_s=windows_s)
    error_lists = [report.device.gpu_errors for report in reports if isinstance(report.device.gpu_errors, list)]
    return replace(device, gpu_errors=list(chain(*error_lists))) if len(error_lists) == len(reports) else device


def _timings(outcomes: Sequence[Outcome]) -> list[Timing]:
    return [outcome.timing for outcome in outcomes if outcome.timing is not None]


def _failed(outcome: Outcome, first: Outcome, before: int) -> Outcome:
    """The outcome of the last process, with the extras that only the first process produced."""
    message = ELSEWHERE.format(message=outcome.message, done=before) if outcome.message else None
    return replace(
        outcome,
        message=message,
        launches=first.launches,
        listings=first.listings,
        profile=first.profile,
        sanitizer=first.sanitizer,
        determinism=first.determinism,
    )


def _pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """Merge the outcomes of one kernel: times and comparisons from all processes, the rest from the first."""
    timings = [outcome.timing for outcome in outcomes if outcome.timing is not None]
    timing = pooled_timing(timings)
    comparisons = [outcome.comparison for outcome in outcomes if outcome.comparison is not None]
    repeats = [outcome.determinism for outcome in outcomes if outcome.determinism is not None]
    position = position_at(outcomes[0].roofline, timings[0].latency_ms, timing.latency_ms)
    first, forward = outcomes[0].gradients, _forward(outcomes)
    return replace(
        outcomes[0],
        timing=timing,
        roofline=position,
        headroom=headroom(timing, position),
        comparison=merged_comparison(comparisons) if comparisons else None,
        determinism=merged(repeats) if repeats else None,
        gradients=replace(first, forward=pooled_timing(forward)) if first is not None and forward else first,
    )


def _forward(outcomes: Sequence[Outcome]) -> list[Timing]:
    gradients = [outcome.gradients for outcome in outcomes if outcome.gradients is not None]
    return [one.forward for one in gradients if one.forward is not None]


def _with_forward_speedup(pooled: Outcome, outcomes: Sequence[Outcome], references: Sequence[Outcome]) -> Outcome:
    if pooled.gradients is None or pooled.gradients.forward is None:
        return pooled
    ratios = [one.gradients.forward_speedup for one in outcomes if one.gradients is not None]
    speedup = pooled_speedup(ratios, _forward(references), _forward(outcomes))
    return replace(pooled, gradients=replace(pooled.gradients, forward_speedup=speedup))


def _stopped_by_device_time(report: Report) -> Report:
    outcome = _stopped(report.outcome)
    return replace(report, outcome=outcome, reference=_stopped(report.reference) if report.reference else None)


def _stopped(outcome: Outcome) -> Outcome:
    timing = outcome.timing
    if timing is None or timing.stop_reason == Stop.TIMEOUT:
        return outcome
    return replace(outcome, timing=replace(timing, stop_reason=Stop.DEVICE_TIME.value))


def _with_flag(report: Report, flag: Flag) -> Report:
    timing = report.outcome.timing
    if timing is None:
        return report
    return replace(report, outcome=replace(report.outcome, timing=replace(timing, flags=[*timing.flags, flag])))
