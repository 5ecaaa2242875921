"""Combines the timings of the same kernels from several processes into one time and one speed-up (docs/adr/0021).

The processes are the sample: more windows in one process cannot average out the differences between processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import RuntimeStats, Speedup, Timing
from profiling.gpu.state_summary import joined
from profiling.stats.downsample import evenly_spaced, rounded
from profiling.stats.process_variance import process_spread_ms
from profiling.stats.statistics import Sample, measured, standard_error, student_t
from profiling.stats.stopping_rule import Stop

DISTRIBUTIONS = ("none", "windows", "events")
"""Sources of a distribution, from the least to the most informative."""
JOB_SPREAD = 1.4
"""Ratio of the spread between jobs to that between one job's processes, which run close in time: 1.3 for thirty jobs
with twelve processes, 1.5 for seventeen with twenty (docs/measurements.md)."""
PAIR_WIDENING, PAIR_WIDENING_PRIOR = 1.5, 1.3
FEW_WIDENING, FEW_WIDENING_PRIOR = 1.8, 1.5
"""Factors of a ratio's interval, for four pairs and more, and for fewer. Ratios do not spread between 220 jobs, so that
a factor of 1 would call one in twenty equal kernels different. With these it is one in forty of four pairs, although
the narrower of two intervals counts. It is one in thirty if only one side differs between processes. The second factor
applies where other jobs provide a prior (tests/profiling/results/test_multi_process.py). Three pairs are wrong by
chance more often."""
PRIOR_FREEDOM = 2
"""Degrees of freedom of the prior variance from other jobs."""
PRIOR_MAX_RATIO = 4.0
"""Maximum ratio of the job's own variance to the prior's; above it the prior does not fit this kernel."""
IN_SO_MANY = "in {} of {} processes"


def pooled_timing(each: Sequence[Timing]) -> Timing:
    """The mean of the kernel's times in each process, in ms; `relative_ci` comes from the spread between processes.

    An upper bound in one process makes the result an upper bound, with its flag and without an interval. `stats` cover
    all calls; medians and percentiles are means over the processes.
    """
    first = each[0]
    if len(each) == 1:
        return first
    times = np.array([one.latency_ms for one in each])
    is_precise = all(one.relative_ci is not None for one in each)
    singles = [one.single_call_ms for one in each if one.single_call_ms is not None]
    launches = {one.launches for one in each}
    windows = [ms for one in each for ms in one.window_ms]
    starts = np.cumsum([0, *(len(one.window_ms) for one in each)])
    excluded = {int(start) + place for start, one in zip(starts, each, strict=False) for place in one.excluded_windows}
    listed = evenly_spaced(len(windows))
    return replace(
        first,
        method=pooled_method([one.method for one in each]),
        stats=_pooled_stats([one.stats for one in each]),
        latency_ms=float(times.mean()),
        windows=sum(one.windows for one in each),
        calls=sum(one.calls for one in each),
        resolution_us=max(one.resolution_us for one in each),
        distribution=min((one.distribution for one in each), key=DISTRIBUTIONS.index),
        flags=pooled_flags([one.flags for one in each]),
        single_call_ms=float(np.mean(singles)) if singles else None,
        launch_overhead_correction_us=float(np.mean([one.launch_overhead_correction_us for one in each])),
        launches=first.launches if len(launches) == 1 else None,
        relative_ci=JOB_SPREAD * _margin(times) / float(times.mean()) if is_precise else None,
        stop_reason=next((one.stop_reason for one in each if one.stop_reason == Stop.TIMEOUT), first.stop_reason),
        gpu_state=joined([one.gpu_state for one in each if one.gpu_state is not None]),
        window_ms=[windows[place] for place in listed],
        excluded_windows=[number for number, place in enumerate(listed) if place in excluded],
        per_process_ms=[rounded(time_ms) for time_ms in times],
        baseline_from_cache=any(one.baseline_from_cache for one in each),
    )


def pooled_method(each: Sequence[str]) -> str:
    """The methods of all processes, then each remark about them once."""
    parts = [method.split("; ") for method in each]
    return "; ".join(
        [
            " and ".join(dict.fromkeys(method for method, *_ in parts)),
            *dict.fromkeys(remark for _, *remarks in parts for remark in remarks),
        ]
    )


def pooled_flags(each: Sequence[Sequence[Flag]]) -> list[Flag]:
    """The flags of all processes: each code once, with the first process's message and the number of processes.

    A flag about one output is merged only with those about the same output.
    """
    first: dict[tuple[Any, ...], Flag] = {}
    processes: Counter[tuple[Any, ...]] = Counter()
    for flags in each:
        by_code = {(flag.code, flag.data.get("output")): flag for flag in flags}
        processes.update(by_code.keys())
        first |= {key: flag for key, flag in by_code.items() if key not in first}
    return [
        Flag(
            flag.code,
            f"{flag.message} ({IN_SO_MANY.format(processes[key], len(each))})",
            {**flag.data, "in_processes": processes[key], "of_processes": len(each)},
        )
        for key, flag in first.items()
    ]


def pooled_speedup(
    each: Sequence[Speedup | None], references: Sequence[Timing], candidates: Sequence[Timing]
) -> Speedup | None:
    """The mean of the logarithms of the ratios over pairs of processes, with a 95 % interval from their spread.

    `references` and `candidates` are the timings in those processes. If one process gives only a bound, the result is
    that bound; if one gives none, it is None. A pair whose candidate has the flag HOST_JITTER counts with both ends of
    its interval in place of its ratio.
    """
    speedups = [one for one in each if one is not None]
    if len(speedups) < len(each):
        return None
    bounds = [one for one in speedups if one.ci_low <= 0 or math.isinf(one.ci_high)]
    if len(speedups) == 1 or bounds:
        return [*bounds, *speedups][0]
    ratios = np.log([one.ratio for one in speedups])
    times = [np.log([timing.latency_ms for timing in side]) for side in (references, candidates)]
    priors = [_prior_variance(side) for side in (references, candidates)]
    margin = _ratio_margin(ratios, times[0] + times[1], priors[0] + priors[1])
    doubtful = [any(flag.code is FlagCode.HOST_JITTER for flag in timing.flags) for timing in candidates]
    low, high = (
        float(np.where(doubtful, np.log(ends), ratios).mean())
        for ends in ([one.ci_low for one in speedups], [one.ci_high for one in speedups])
    )
    return measured(math.exp(float(ratios.mean())), math.exp(low - margin), math.exp(high + margin))


def _margin(sample: Sample) -> float:
    """Half the width of the mean's 95 % interval."""
    return student_t(sample.size - 1) * standard_error(sample)


def _prior_variance(side: Sequence[Timing]) -> float:
    """The relative variance of a kernel's time between processes, as measured on other jobs; 0 if unknown.

    It leaves out the placement in memory, of which each process is a sample.
    """
    if any(timing.launches is None for timing in side):
        return 0.0
    each = [
        process_spread_ms(timing.calls_per_window, timing.launches or 1, 0.0, 0.0)
        / timing.calls_per_window
        / timing.latency_ms
        for timing in side
    ]
    return float(np.mean(np.square(each)))


def _ratio_margin(ratios: Sample, sums: Sample, prior: float) -> float:
    """Half the width of the mean ratio's 95 % interval; `ratios` and `sums` are of the logarithms of a pair's times.

    Two estimates of the variance compete, and the narrower interval counts. One uses the pairs' ratios. The other uses
    all processes of both sides, twice as many: Student's t is 2.4 for eight processes with six degrees of freedom, and
    3.2 for four pairs with three. Processes vary independently, so that sums of a pair vary as ratios do. If something
    moves both sides of a pair, such as a warming card, sums vary more and the ratios give the narrower interval.
    Neither estimate covers a card on which the sides of a pair differ against each other.

    `prior` is the ratio's variance by the processes of other jobs, 0 if unknown. It enters as an inverse gamma prior
    (Gelman et al., Bayesian Data Analysis, section 2.6). Four pairs that agree by luck then keep a realistic width, and
    four that differ by chance get a narrower one.
    """
    freedom = ratios.size - 1
    of_pairs, of_sums = float(ratios.var(ddof=1)), float(sums.var(ddof=1))
    estimates = [(of_pairs, freedom), ((of_pairs + of_sums) / 2, 2 * freedom)]
    widening, widening_prior = (
        (FEW_WIDENING, FEW_WIDENING_PRIOR) if ratios.size < 4 else (PAIR_WIDENING, PAIR_WIDENING_PRIOR)
    )
    if prior and min(variance for variance, _ in estimates) <= PRIOR_MAX_RATIO * prior:
        widening = widening_prior
        more = PRIOR_FREEDOM
        estimates = [((more * prior + free * variance) / (more + free), more + free) for variance, free in estimates]
    return widening * min(student_t(free) * math.sqrt(variance / ratios.size) for variance, free in estimates)


def _pooled_stats(each: Sequence[RuntimeStats]) -> RuntimeStats:
    means = np.array([one.mean for one in each])
    within = float(np.mean([one.std**2 for one in each]))
    return RuntimeStats(
        mean=float(means.mean()),
        std=math.sqrt(within + float(means.var())),
        min=min(one.min for one in each),
        max=max(one.max for one in each),
        median=float(np.mean([one.median for one in each])),
        percentile_95=float(np.mean([one.percentile_95 for one in each])),
        percentile_99=float(np.mean([one.percentile_99 for one in each])),
    )
