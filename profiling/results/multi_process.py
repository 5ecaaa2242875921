"""One time, and one speed-up, out of what the same kernels took in several processes (docs/adr/0038).

The processes are the sample: what a kernel differs by from one to the next no number of windows in one averages out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from domain.flags import OF_THE_HOST
from domain.result import RuntimeStats, Speedup, Timing
from profiling.gpu.state_summary import joined
from profiling.stats.downsample import places, rounded
from profiling.stats.process_variance import process_apart_ms
from profiling.stats.statistics import Sample, measured, standard_error, student_t
from profiling.stats.stopping_rule import Stop

DISTRIBUTIONS = ("none", "windows", "events")
"""Where a distribution comes from, what says the least first."""
FIGURES = re.compile(r"-?[\d.]+(e[-+]?\d+)?\s?(ns|µs|ms|s|%)?")
JOBS_APART = 1.4
"""So many times as much jobs' times differ as their processes say, which stand close to each other in time: those of
thirty with twelve processes by 1.3, of seventeen with twenty by 1.5 (docs/measurements.md)."""
PAIRS_APART, PAIRS_KNOWN = 1.5, 1.3
FEW_APART, FEW_KNOWN = 1.8, 1.5
"""Ratios of 220 jobs do not, so that one in twenty of equal kernels would be told apart: that is to be rarer, though
the narrower of two intervals is taken: of four pairs one in forty, one in thirty where only one side differs from
process to process. The second is where other jobs tell what processes differ by
(tests/profiling/results/test_multi_process.py); of three pairs or two more are wrong by chance."""
KNOWN_FREEDOM = 2
"""What is known from other jobs counts for so many degrees of freedom beside what the job's own processes show."""
KNOWN_TIMES = 4.0
"""Where their variance is so many times what is known, nothing is known of this kernel."""
IN_SO_MANY = "in {} of {} processes"


def pooled_timing(each: Sequence[Timing]) -> Timing:
    """The mean of what the kernel took in each process, in ms; `relative_ci` by what these differ by.

    An upper bound in one of them makes it one, with the flag that says so and without an interval. `stats` are of all
    calls: their percentiles and medians are the means of each process's.
    """
    first = each[0]
    if len(each) == 1:
        return first
    times = np.array([one.latency_ms for one in each])
    known = all(one.relative_ci is not None for one in each)
    singles = [one.single_call_ms for one in each if one.single_call_ms is not None]
    launches = {one.launches for one in each}
    windows = [ms for one in each for ms in one.window_ms]
    starts = np.cumsum([0, *(len(one.window_ms) for one in each)])
    excluded = {int(start) + place for start, one in zip(starts, each, strict=False) for place in one.excluded_windows}
    shown = places(len(windows))
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
        relative_ci=JOBS_APART * _margin(times) / float(times.mean()) if known else None,
        stop_reason=next((one.stop_reason for one in each if one.stop_reason == Stop.TIMEOUT), first.stop_reason),
        gpu_state=joined([one.gpu_state for one in each if one.gpu_state is not None]),
        window_ms=[windows[place] for place in shown],
        excluded_windows=[number for number, place in enumerate(shown) if place in excluded],
        per_process_ms=[rounded(time_ms) for time_ms in times],
        baseline_from_cache=any(one.baseline_from_cache for one in each),
    )


def pooled_method(each: Sequence[str]) -> str:
    """How windows were taken in any process, then each remark about it once."""
    parts = [method.split("; ") for method in each]
    return "; ".join(
        [
            " and ".join(dict.fromkeys(how for how, *_ in parts)),
            *dict.fromkeys(said for _, *more in parts for said in more),
        ]
    )


def pooled_flags(each: Sequence[Sequence[str]]) -> list[str]:
    """What was said in any process, once where it was said in others with other figures, and in how many."""
    first: dict[str, str] = {}
    said: Counter[str] = Counter()
    for flags in each:
        forms = {FIGURES.sub("", flag): flag for flag in flags}
        said.update(forms.keys())
        first = forms | first
    return [f"{flag} ({IN_SO_MANY.format(said[form], len(each))})" for form, flag in first.items()]


def pooled_speedup(
    each: Sequence[Speedup | None], references: Sequence[Timing], candidates: Sequence[Timing]
) -> Speedup | None:
    """The mean of the ratios' logarithms in pairs of processes, with a 95 % interval by what these differ by.

    `references` and `candidates` are the timings in those processes. Where one is a bound alone, that one; None where
    one is none. A ratio that the host may have made another, by what its timing says, may lie anywhere in its interval.
    """
    found = [one for one in each if one is not None]
    if len(found) < len(each):
        return None
    bounds = [one for one in found if one.ci_low <= 0 or math.isinf(one.ci_high)]
    if len(found) == 1 or bounds:
        return [*bounds, *found][0]
    ratios = np.log([one.ratio for one in found])
    times = [np.log([timing.latency_ms for timing in side]) for side in (references, candidates)]
    known = [_process_variance(side) for side in (references, candidates)]
    margin = _ratio_margin(ratios, times[0] + times[1], known[0] + known[1])
    doubtful = [any(OF_THE_HOST in flag for flag in timing.flags) for timing in candidates]
    low, high = (
        float(np.where(doubtful, np.log(ends), ratios).mean())
        for ends in ([one.ci_low for one in found], [one.ci_high for one in found])
    )
    return measured(math.exp(float(ratios.mean())), math.exp(low - margin), math.exp(high + margin))


def _margin(sample: Sample) -> float:
    """How far a 95 % interval of the mean goes each way."""
    return student_t(sample.size - 1) * standard_error(sample)


def _process_variance(side: Sequence[Timing]) -> float:
    """What is known of how far that kernel's time differs between processes of this card, relative; 0 of nothing."""
    if any(timing.launches is None for timing in side):
        return 0.0
    each = [
        process_apart_ms(timing.calls_per_window, timing.launches or 1, 0.0)
        / timing.calls_per_window
        / timing.latency_ms
        for timing in side
    ]
    return float(np.mean(np.square(each)))


def _ratio_margin(ratios: Sample, sums: Sample, known: float) -> float:
    """How far a 95 % interval of the mean ratio goes each way; `ratios` and `sums` are of a pair's logarithms.

    By all processes of both sides, twice as many as pairs: Student's t of four pairs is 3.2 with three degrees of
    freedom, of eight processes 2.4 with six. Processes differ by themselves, so that sums vary as ratios do. Where
    something moves both sides of a pair, as a card does that grows warm, they vary by more: then ratios tell better.
    Nothing is known on a card that has the sides of a pair differ against each other.

    `known` is a ratio's variance by what other jobs' processes differed by. It stands beside the job's own as an
    inverse gamma prior does (Gelman et al., Bayesian Data Analysis, section 2.6): four pairs that are alike by luck are
    not believed to be, and four that are not cost less width.
    """
    free = ratios.size - 1
    of_pairs, of_sums = float(ratios.var(ddof=1)), float(sums.var(ddof=1))
    told = [(of_pairs, free), ((of_pairs + of_sums) / 2, 2 * free)]
    wider, wider_known = (FEW_APART, FEW_KNOWN) if ratios.size < 4 else (PAIRS_APART, PAIRS_KNOWN)
    if known and min(variance for variance, _ in told) <= KNOWN_TIMES * known:
        wider = wider_known
        more = KNOWN_FREEDOM
        told = [((more * known + own * variance) / (more + own), more + own) for variance, own in told]
    return wider * min(student_t(own) * math.sqrt(variance / ratios.size) for variance, own in told)


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
