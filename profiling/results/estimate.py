"""Estimates a kernel's time from its windows, with corrections and an interval."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiling.integrity.deferred_readback import reconcile_deferred_readback
from profiling.integrity.disagreement import Estimate, Measured, slowest
from profiling.integrity.single_call import (
    LEAST_LAUNCH_MS,
    SingleCallAllowance,
    host_jitter,
    reconcile_single_call,
    single_call,
    single_call_allowance,
)
from profiling.results.samples import KernelWindows, Samples, WindowSetup
from profiling.stats.flags import EarlyStart, early_start
from profiling.stats.process_variance import process_spread_ms
from profiling.stats.statistics import MAX_OUTLIERS, MAX_OUTLIERS_MOVED, Sample, half_width, undisturbed


class Correction(NamedTuple):
    """The time to add to each window, its standard error and its bounds, in ms.

    The bounds differ from the time only if the host may have delayed check windows.
    """

    added_ms: float = 0.0
    error_ms: float = 0.0
    span_ms: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class TimeEstimate:
    """One kernel's time by its windows.

    - `net_ms`: each window's time (`net_ms`); `used` marks the windows that nothing disturbed.
    - `early_start`: the work before the release in each window.
    - `host_pace_ratio`: as `KernelWindows` has it.
    - `single_call`, `deferred_readback`: the time of a call after comparison with these check windows. `unsure` says
      that more of them may change it.
    """

    setup: WindowSetup
    net_ms: Sample
    used: NDArray[np.bool_]
    early_start: EarlyStart
    single_call: Estimate
    deferred_readback: Estimate
    host_pace_ratio: float = 1.0

    @property
    def call_ms(self) -> Sample:
        """The time of a call in each undisturbed window, in ms."""
        return self.net_ms[self.used] / self.setup.calls

    @property
    def checked(self) -> Estimate:
        """The windows' time of a call; for a candidate the check windows' time if that is significantly longer."""
        return slowest(self.single_call, self.deferred_readback)

    @property
    def correction(self) -> Correction:
        """The time to add to each window because check windows are significantly slower; zero if they are not."""
        checked, calls = self.checked, self.setup.calls
        if checked.flag is None:
            return Correction()
        mean_ms = float(self.call_ms.mean())
        times_ms = checked.time_ms, *(checked.span_ms or (checked.time_ms, checked.time_ms))
        added_ms, least_ms, most_ms = (calls * (time_ms - mean_ms) for time_ms in times_ms)
        return Correction(added_ms, calls * checked.error_ms, (least_ms, most_ms))

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the time in this process, relative to that time."""
        return half_width(self.net_ms[self.used])

    @property
    def max_launches(self) -> int:
        """A call's launches: the runner's count, at most as many as fit into its time; that many if it has no count."""
        fitting = max(int(float(self.call_ms.mean()) / LEAST_LAUNCH_MS), 1)
        return min(max(self.setup.launches, 1), fitting) if self.setup.launches is not None else fitting

    def process_spread_ms(self, unlike_ms: float) -> float:
        """The standard deviation of a window between processes (`process_spread_ms`), in ms; 0 on a host: unknown."""
        if not self.setup.is_cuda:
            return 0.0
        calls = self.setup.calls
        window_ms = calls * max(0.0, float(self.call_ms.mean()))
        return process_spread_ms(calls, self.max_launches, unlike_ms, window_ms)


def estimate(windows: KernelWindows, reference: KernelWindows | None = None) -> TimeEstimate:
    """The kernel's time. The windows of its `reference` show what an honest single call takes longer."""
    setup, net = windows.usual.setup, net_ms(windows)
    used = np.ones(net.size, dtype=np.bool_)
    used[list(windows.slow_rounds)] = False
    used[used] = undisturbed(net[used], MAX_OUTLIERS_MOVED if setup.moves_memory else MAX_OUTLIERS)
    call_ms = net[used] / setup.calls
    single = deferred = Estimate(float(call_ms.mean()))
    if setup.is_candidate:
        single = _single_call(windows, call_ms, reference)
        deferred = reconcile_deferred_readback(call_ms, windows.deferred_readback, setup.kind, setup.launch_shift_ms)
    return TimeEstimate(setup, net, used, early_starts(windows.usual), single, deferred, windows.host_pace_ratio)


def net_ms(windows: KernelWindows) -> Sample:
    """Each window's time minus its null window's, with its early start. Noise may take a short one below zero."""
    net: Sample = _after_release_ms(windows.usual) + early_starts(windows.usual).added_ms
    return net


def early_starts(samples: Samples) -> EarlyStart:
    """The work before the release in each window; unknown on a host, where other programs run at the same time."""
    early = np.asarray(samples.setup_ms) - np.asarray(samples.null_setup_ms)
    counts = samples.setup.is_cuda and samples.setup.is_candidate and early.size > 0
    return early_start(early) if counts else EarlyStart(np.zeros(early.size))


def post_release_ms(samples: Samples) -> float:
    """The median time of a call after the release, in ms, without work that was done before it."""
    return float(np.median(_after_release_ms(samples))) / samples.setup.calls


def null_share(samples: Samples) -> float:
    """The null windows' share of the undisturbed windows' time."""
    used = undisturbed(net_ms(KernelWindows(samples)))
    return float(np.asarray(samples.null_ms)[used].sum() / np.asarray(samples.elapsed_ms)[used].sum())


def allowance(reference: KernelWindows) -> SingleCallAllowance | None:
    """The extra time of an honest single call by the reference's windows; None without the gate."""
    setup = reference.usual.setup
    usual = Measured.of(estimate(reference).call_ms)
    return single_call_allowance(usual, reference.single, setup.weight_bytes) if setup.gated else None


def _after_release_ms(samples: Samples) -> Sample:
    net: Sample = np.asarray(samples.elapsed_ms) - np.asarray(samples.null_ms)
    return net - samples.setup.calls * samples.setup.launch_shift_ms


def _single_call(windows: KernelWindows, call_ms: Sample, reference: KernelWindows | None) -> Estimate:
    """The windows' time, or a single call's if that is significantly longer."""
    setup = windows.usual.setup
    single = single_call(windows.single, setup.kind)
    if single is None:
        return Estimate(float(call_ms.mean()))
    compares = reference is not None and windows.comparable_singles and setup.gated
    allowed = allowance(reference) if reference is not None and compares else None
    host = host_jitter(windows.single, setup.kind, statistics.median(windows.usual.null_ms) / setup.calls)
    return reconcile_single_call(call_ms, single, host, allowed, 1 if setup.launches is None else setup.launches)
