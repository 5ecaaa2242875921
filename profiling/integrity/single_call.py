"""Compares a kernel's calls in windows of many with single calls: a kernel may do many calls' work in one (exploit
T20)."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

import numpy as np

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.integrity.disagreement import (
    DRIFT_MS,
    FEWEST,
    HOST_JITTER_SHARE,
    LATE_MS,
    MIN_DIFFERENCE,
    NO_HOST_JITTER,
    NULL_DRIFT_MS,
    CheckWindows,
    Disagreement,
    Estimate,
    HostJitter,
    Measured,
    figures,
    middle,
    reconcile,
    reconcile_windows,
    slowest,
)
from profiling.stats.flags import JOINT_ERRORS
from profiling.stats.statistics import Sample, standard_error

SETTLED_STREAMED = 48
"""Number of streamed single calls from which their minimum is settled: a busy host keeps all of them long for a
while."""
SIDE_DIFFERENCE_MS = 0.01
"""Maximum honest difference between candidate and reference in what a single call takes longer, in ms; or 5 % of the
reference's time if that is more. Both sides of an honest comparison differ by -5 to 7 µs (59 pairs on H100s;
docs/measurements.md)."""
WEIGHT_BYTES_PER_MS = 4e8
"""Minimum rate at which weights are read, in bytes a ms. A single call reads its weights from memory; in a window of
many only the first call does. A float32 product of 1024² takes 7.6 µs longer for 4 MiB of weights, its reference, which
is bound by arithmetic, no longer (docs/measurements.md)."""
WARM_MS, COLD_MS = -0.018, 0.014
"""Range, in ms, to which the reference's extra time of a single call is clipped: the least of 136 honest ones, which
took -18 to 9 µs, and the time to read all that the L2 holds. The candidate's process could make the reference's
longer."""
AHEAD_MS = {"gated": 0.1, "streamed": LATE_MS, "host": math.inf}
"""Minimum extra setup time of a single call that counts as work before the release, in ms, by kind. An honest one
differs by -50 to 80 µs (docs/measurements.md). On a host it is unknown, because other programs run at the same time."""
LEAST_LAUNCH_MS = 1.2e-3
"""Minimum time between two launches in one queue, in ms: 1.67 µs is the least seen on an H200
(docs/measurements.md)."""
FASTEST_LAUNCH_MS = 0.5e-3
"""Minimum time per launch of a call in a window of many, in ms, with several hardware queues."""

HOST_JITTER_MS = 0.2
"""Maximum extra time of a streamed single call that is no evidence, in ms; the longer time is reported all the same. It
runs host code that has not run for a millisecond, and honest ones took that much more (docs/measurements.md)."""

SHARED = "calls share work or are done ahead, so the time is that of the single call"
SINGLE_CALL = Disagreement(
    FlagCode.SINGLE_CALL_SLOWER, "a call by itself takes {longer}, in a window of many only {usual}", SHARED
)
SINGLE_CALL_VS_REFERENCE = Disagreement(
    FlagCode.SINGLE_CALL_SLOWER,
    "a call by itself takes {longer}, less what the reference's takes longer than in a window of many, and in such a "
    "window only {usual}",
    SHARED,
)
LESS_THAN_LAUNCHES = (
    "a call takes {usual} in a window of many, which is less than {launches}, and by itself {longer}: its work is done "
    "in another call, so the time is that of the single call"
)


def single_call(single: CheckWindows, kind: str) -> Measured | None:
    """The time of a single call, work before the release included; None with too few windows.

    A streamed call sometimes waits long for a host that has just woken. No call takes less than its own work, because
    each gets unseen inputs. Therefore the shortest streamed call counts, and the median of the others.
    """
    if len(single.elapsed_ms) < FEWEST:
        return None
    times_ms = single.net_ms + np.where(single.early_start_ms < AHEAD_MS[kind], 0.0, single.early_start_ms)
    median = middle(times_ms)
    if kind != "streamed":
        return median
    return replace(median, time_ms=float(times_ms.min()), few=len(single.elapsed_ms) < SETTLED_STREAMED)


def median_single_call_ms(single: CheckWindows) -> float | None:
    """The median time of a single call, for information; None if it is not above its null window's."""
    middle_ms = float(np.median(single.net_ms)) if single.elapsed_ms else 0.0
    return middle_ms if middle_ms > 0 else None


@dataclass(frozen=True)
class SingleCallAllowance:
    """The extra time of an honest gated call by itself, compared with windows of many, by the reference's example.

    It is negative for most kernels: the outputs of a single call are still in the cache when they are copied. A
    candidate's single call may take `tolerance_ms` longer than that. `typical_ms` leaves out calls that are slow by
    chance; it is subtracted from a single-call time that is reported.
    """

    longer: Measured
    tolerance_ms: float
    typical_ms: float


def single_call_allowance(usual: Measured, single: CheckWindows, weight_bytes: int = 0) -> SingleCallAllowance | None:
    """The allowance by a reference's windows; None with too few single calls. The task's weights have `weight_bytes`.

    It uses the mean of the single calls, as for windows of many, because a call may take one time or another.
    """
    if len(single.elapsed_ms) < FEWEST:
        return None
    net = single.net_ms
    mean_ms, median_ms = (
        float(np.clip(level - usual.time_ms, WARM_MS, COLD_MS)) for level in (net.mean(), np.median(net))
    )
    error_ms = math.hypot(standard_error(net), usual.error_ms)
    weights_ms = min(weight_bytes / WEIGHT_BYTES_PER_MS, COLD_MS)
    tolerance_ms = max(SIDE_DIFFERENCE_MS + weights_ms, MIN_DIFFERENCE * usual.time_ms)
    return SingleCallAllowance(Measured(mean_ms, error_ms), tolerance_ms, min(mean_ms, median_ms))


def host_jitter(single: CheckWindows, kind: str, null_ms: float) -> HostJitter:
    """The possible influence of the host on streamed single calls; `null_ms` is a usual null window's time per call."""
    if kind != "streamed":
        return NO_HOST_JITTER
    hidden_ms = MIN_DIFFERENCE * statistics.median(single.null_ms) + NULL_DRIFT_MS[kind]
    return HostJitter(HOST_JITTER_MS, hidden_ms, HOST_JITTER_SHARE * null_ms)


def reconcile_single_call(
    windows: Sample, single: Measured, host: HostJitter, allowance: SingleCallAllowance | None = None, launches: int = 0
) -> Estimate:
    """The usual windows' time, or a single call's if that is significantly longer.

    A single call is longer if it exceeds DRIFT_MS, or `allowance` where the reference gives one. A call cannot take
    less than its `launches` either; if it seems to, the longer of the
    single call and LEAST_LAUNCH_MS per launch counts.
    """
    usual = Measured.of(windows)
    estimate = reconcile_windows(windows, single, DRIFT_MS, SINGLE_CALL, host)
    if allowance is not None:
        by_reference = reconcile(usual, single.less(allowance.longer), allowance.tolerance_ms, SINGLE_CALL_VS_REFERENCE)
        single = single.less(replace(allowance.longer, time_ms=allowance.typical_ms))
        if by_reference.flag is not None:  # Its flag then names the time that is reported.
            by_reference = reconcile(usual, single, allowance.tolerance_ms, SINGLE_CALL_VS_REFERENCE)
        estimate = slowest(estimate, by_reference)
    # A call without a launch has no minimum, and noise may take its time below zero.
    if launches and usual.time_ms + JOINT_ERRORS * usual.error_ms + host.short_ms < launches * FASTEST_LAUNCH_MS:
        single = replace(single, time_ms=max(single.time_ms, launches * LEAST_LAUNCH_MS))
        message = LESS_THAN_LAUNCHES.format(longer=single, usual=usual, launches=_launches(launches))
        flag = Flag(FlagCode.FASTER_THAN_LAUNCHES, message, figures(usual, single) | {"launches": launches})
        estimate = slowest(estimate, Estimate(single.time_ms, flag, single.few, single.error_ms))
    return estimate


def _launches(count: int) -> str:
    return "a launch does" if count == 1 else f"its {count} launches do"
