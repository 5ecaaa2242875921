"""Combines the times and speed-ups of a job's cases into geometric means (docs/adr/0038)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import RuntimeStats, Speedup, Timing
from profiling.gpu.state_summary import joined
from profiling.stats.statistics import measured
from profiling.stats.stopping_rule import Stop

METHOD = "geometric mean over {count} cases"


def mean_timing(each: Sequence[Timing], names: Sequence[str]) -> Timing:
    """The geometric mean of the times of cases with those names, in ms; the first timing is the primary case's.

    `relative_ci` is the mean of the cases' half widths. It holds even if all errors have one cause, such as the
    process, and is wider than it has to be if they are independent.
    """
    first, count = each[0], len(each)
    mean_ms = geometric_mean([one.latency_ms for one in each])
    half_widths = [one.relative_ci for one in each if one.relative_ci is not None]
    remarks = dict.fromkeys(part for one in each for part in one.method.split("; "))
    return replace(
        first,
        method="; ".join([METHOD.format(count=count), *remarks]),
        stats=RuntimeStats(mean_ms, 0.0, *[mean_ms] * 5),
        latency_ms=mean_ms,
        windows=sum(one.windows for one in each),
        calls=sum(one.calls for one in each),
        resolution_us=max(one.resolution_us for one in each),
        distribution="none",
        flags=[Flag.of(FlagCode.MEAN_OF_CASES, cases=count), *_flags(each, names)],
        single_call_ms=None,
        relative_ci=sum(half_widths) / count if len(half_widths) == count else None,
        stop_reason=next((one.stop_reason for one in each if one.stop_reason == Stop.TIMEOUT), first.stop_reason),
        gpu_state=joined([one.gpu_state for one in each if one.gpu_state is not None]),
        window_ms=[],
        excluded_windows=[],
        baseline_from_cache=any(one.baseline_from_cache for one in each),
    )


def mean_speedup(each: Sequence[Speedup | None]) -> Speedup | None:
    """The geometric mean of the cases' ratios, with the geometric means of their bounds as its 95 % interval.

    These bounds hold whatever the correlation of the cases' errors. None if a case has no speed-up; a bound without a
    limit stays one.
    """
    known = [one for one in each if one is not None]
    if not known or len(known) < len(each):
        return None
    ratio, low, high = (
        geometric_mean(values)
        for values in (
            [one.ratio for one in known],
            [one.ci_low for one in known],
            [one.ci_high for one in known],
        )
    )
    return measured(ratio, low, high)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; 0.0 if one is not positive, infinite if one is infinite."""
    if min(values) <= 0:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def _flags(each: Sequence[Timing], names: Sequence[str]) -> list[Flag]:
    """Each code once, with the first case's message and the names of its cases."""
    first: dict[FlagCode, Flag] = {}
    flagged: dict[FlagCode, list[str]] = defaultdict(list)
    for timing, name in zip(each, names, strict=True):
        for code, flag in {flag.code: flag for flag in timing.flags}.items():
            first.setdefault(code, flag)
            flagged[code].append(name)
    return [
        Flag(
            code, f"{flag.message} ({_in_cases(flagged[code], len(each))})", {**flag.data, "cases": len(flagged[code])}
        )
        for code, flag in first.items()
    ]


def _in_cases(names: Sequence[str], count: int) -> str:
    return f"in case {names[0]!r}" if len(names) == 1 else f"in {len(names)} of {count} cases"
