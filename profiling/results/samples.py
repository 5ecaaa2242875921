"""The samples of one kernel's windows, and the timing that the referee computes from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from domain.flags import Flag, FlagCode
from domain.result import Timing
from profiling.integrity.deferred_readback import reconcile_deferred_readback
from profiling.integrity.disagreement import CheckWindows, Estimate, Measured, slowest
from profiling.integrity.single_call import (
    LEAST_LAUNCH_MS,
    SingleCallAllowance,
    host_jitter,
    median_single_call_ms,
    reconcile_single_call,
    single_call,
    single_call_allowance,
)
from profiling.stats.call_distribution import matching_event_shapes
from profiling.stats.downsample import evenly_spaced, rounded
from profiling.stats.flags import EarlyStart, Misfit, early_start, events_misfit, max_setup_ms
from profiling.stats.process_variance import process_spread_ms
from profiling.stats.statistics import DEVIATIONS, Sample, half_width, resolved, runtime_stats, undisturbed
from profiling.stats.stopping_rule import Stop
from profiling.window.timed_window import Clock, Window

METHODS = {
    (True, True): "gated_window",
    (True, False): "streamed_window",
    (False, False): "host_window",
}


class Correction(NamedTuple):
    """The time to add to each window, its standard error and its bounds, in ms.

    The bounds differ from the time only if the host may have delayed check windows.
    """

    added_ms: float = 0.0
    error_ms: float = 0.0
    span_ms: tuple[float, float] = (0.0, 0.0)


@dataclass
class TimeRecord:
    """One kernel's windows, all with the same number of calls, each with a trusted null window next to it.

    The referee subtracts each null window from its own window: both drift together, and the noise of null windows shows
    in the spread of the difference. A later check finds null windows that the submission made longer
    (profiling.integrity.interference).

    - `launch_shift_ms`: a launch's time in this process minus the card's usual one, measured before the process had a
      submission; subtracted once a call.
    - `launches`: a call's launches by the runner's own count, None if unknown; used only for the possible error.
    - `is_candidate`: extra setup time and slower check windows count. For a reference they do not, because the
      candidate's process could cause both.
    - `setup_ms`, `null_setup_ms`: the setup times of the windows and of their null windows. A longer setup is work
      before the release.
    - `interference_factor`: the ratio of the windows' time next to the other kernel's process to that without it.
    - `single`, `deferred_readback`: check windows of one call, and those whose outputs are copied after all calls.
    - `reference`: the record that says what an honest single call takes longer, for a task with weights of
      `weight_bytes` bytes.
    """

    calls: int
    is_cuda: bool
    gated: bool
    launch_shift_ms: float = 0.0
    launches: int | None = 1
    is_candidate: bool = True
    reference: TimeRecord | None = None
    weight_bytes: int = 0
    elapsed_ms: list[float] = field(default_factory=list)
    null_ms: list[float] = field(default_factory=list)
    setup_ms: list[float] = field(default_factory=list)
    null_setup_ms: list[float] = field(default_factory=list)
    single: CheckWindows = field(default_factory=partial(CheckWindows, paired=False))
    deferred_readback: CheckWindows = field(default_factory=CheckWindows)
    flags: list[Flag] = field(default_factory=list)
    gpu_state: dict[str, Any] | None = None
    stopped: Stop | None = None
    interference_factor: float = 1.0
    _event_samples: list[tuple[float, list[float]]] = field(default_factory=list)

    def warm_up(self, window: Window, null: Clock) -> None:
        """Adds a window that gives only the distribution: on a GPU its events make it longer than the others."""
        self._record_events(window, null)

    def add(self, window: Window, null: Clock) -> None:
        """Adds a window and the null window next to it."""
        self.elapsed_ms.append(window.elapsed_ms)
        self.null_ms.append(null.elapsed_ms)
        self.setup_ms.append(window.setup_ms)
        self.null_setup_ms.append(null.setup_ms)
        self._record_events(window, null)

    def drop_last(self) -> None:
        """Removes the last window, which is to be repeated."""
        for times_ms in (self.elapsed_ms, self.null_ms, self.setup_ms, self.null_setup_ms):
            times_ms.pop()

    def correct_null(self, isolated_ms: Sequence[float]) -> None:
        """Replaces null windows that the submission slowed by the median of those measured without it."""
        self.null_ms = [statistics.median(isolated_ms)] * len(self.null_ms)

    def correct_null_setup(self, isolated_ms: Sequence[float]) -> bool:
        """Caps the setup times of null windows at what they take without the submission; returns whether that matters.

        A null window that the submission delays hides work that it does before the release.
        """
        before = self._early_start.added_ms
        limit_ms = max_setup_ms(isolated_ms)
        self.null_setup_ms = [min(setup_ms, limit_ms) for setup_ms in self.null_setup_ms]
        return not np.allclose(before, self._early_start.added_ms)

    def null_setup_needs_no_correction(self, isolated_ms: Sequence[float]) -> bool:
        """Whether `correct_null_setup` would change nothing."""
        return max(self.null_setup_ms) <= max_setup_ms(isolated_ms)

    @property
    def net_ms(self) -> Sample:
        """Each window's time minus its null window's, with corrections. Noise may take a short one below zero."""
        net: Sample = np.asarray(self.elapsed_ms) - np.asarray(self.null_ms) - self.calls * self.launch_shift_ms
        return (net + self._early_start.added_ms) / self.interference_factor

    @property
    def kind(self) -> str:
        """How its windows were measured: "gated", "streamed" (without the gate) or "host"."""
        return "host" if not self.is_cuda else "gated" if self.gated else "streamed"

    @property
    def null_share(self) -> float:
        """The null windows' share of the undisturbed windows' time."""
        used = undisturbed(self.net_ms)
        return float(np.asarray(self.null_ms)[used].sum() / np.asarray(self.elapsed_ms)[used].sum())

    @property
    def setup_delayed(self) -> bool:
        """Whether setup took significantly longer next to this kernel's process than next to an idle one."""
        return self._early_start.flag is not None

    @property
    def post_release_ms(self) -> float:
        """The time of a call after the release, in ms, without work that was done before it."""
        net = np.asarray(self.elapsed_ms) - np.asarray(self.null_ms) - self.calls * self.launch_shift_ms
        return float(np.median(net)) / self.calls / self.interference_factor

    @property
    def _early_start(self) -> EarlyStart:
        """The work before the release in each window; unknown on a host, where other programs run at the same time."""
        early = np.asarray(self.setup_ms) - np.asarray(self.null_setup_ms)
        counts = self.is_cuda and self.is_candidate and early.size > 0
        return early_start(early) if counts else EarlyStart(np.zeros(early.size))

    @property
    def max_launches(self) -> int:
        """A call's launches: the runner's count, at most as many as fit into its time; that many if it has no count."""
        windows = self._undisturbed_ms
        fitting = max(int(float(windows.mean()) / LEAST_LAUNCH_MS), 1) if len(windows) else 1
        return min(max(self.launches, 1), fitting) if self.launches is not None else fitting

    def process_spread_ms(self, unlike_ms: float) -> float:
        """The standard deviation of a window between processes (`process_spread_ms`), in ms; 0 on a host: unknown."""
        return process_spread_ms(self.calls, self.max_launches, unlike_ms) if self.is_cuda else 0.0

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the time in this process, relative to that time."""
        net = self.net_ms
        return half_width(net[undisturbed(net)])

    @property
    def _undisturbed_ms(self) -> Sample:
        """The time of a call in each undisturbed window, in ms."""
        net = self.net_ms
        return net[undisturbed(net)] / self.calls

    @property
    def needs_single_calls(self) -> bool:
        """Whether more single-call windows may change the reported time."""
        return self.is_candidate and self._single_call(self._undisturbed_ms).unsure

    @property
    def needs_deferred_readback(self) -> bool:
        """Whether more deferred-readback windows may change the reported time."""
        return self._deferred_readback(self._undisturbed_ms).unsure

    @property
    def correction(self) -> Correction:
        """The time to add to each window because check windows are significantly slower; zero if they are not."""
        windows = self._undisturbed_ms
        estimate = self._estimate(windows)
        if estimate.flag is None:
            return Correction()
        times_ms = estimate.time_ms, *(estimate.span_ms or (estimate.time_ms, estimate.time_ms))
        added_ms, least_ms, most_ms = (self.calls * (time_ms - float(windows.mean())) for time_ms in times_ms)
        return Correction(added_ms, self.calls * estimate.error_ms, (least_ms, most_ms))

    def timing(self, cache: str) -> Timing:
        """The timing. Its level comes from the referee's clock alone; the runner's events only give its
        distribution."""
        net, used = self.net_ms, undisturbed(self.net_ms)
        windows = net[used] / self.calls
        counted = len(windows)
        listed = evenly_spaced(len(net))
        level, bounded = resolved(windows)
        shapes, misfits = self._event_shapes()
        shape = np.concatenate(shapes) if shapes and not misfits and not bounded else None
        flags = list(self.flags)
        if bounded:
            flags.append(
                Flag(
                    FlagCode.UPPER_BOUND,
                    "too short for what a window can resolve here: the time is an upper bound, not a measurement",
                    {"call_ms": level},
                )
            )
        if (misfit := events_misfit(misfits, len(self._event_samples))) is not None:
            flags.append(misfit)
        if (flag := self._early_start.flag) is not None:
            flags.append(flag)
        if (longer := self._estimate(windows)).flag is not None:
            level, shape = longer.time_ms, None
            windows = np.full(1, level)
            flags.append(longer.flag)
        if counted < len(net):
            flags.append(
                Flag(
                    FlagCode.WINDOWS_EXCLUDED,
                    f"{len(net) - counted} of {len(net)} windows were disturbed from outside and left out",
                    {"excluded_windows": len(net) - counted, "windows": len(net)},
                )
            )
        # A distribution that reaches below zero would only be one of noise.
        samples = windows if not bounded and windows.min() > 0 else np.full(1, level)
        source = "events" if shape is not None else "windows" if len(samples) > 1 else "none"
        narrow = half_width(windows)
        if math.isfinite(narrow):
            narrow = math.hypot(
                narrow, DEVIATIONS * self.process_spread_ms(abs(self.launch_shift_ms)) / (self.calls * level)
            )
        return Timing(
            method=METHODS[self.is_cuda, self.gated],
            stats=runtime_stats(samples if shape is None else level * shape),
            latency_ms=level,
            calls_per_window=self.calls,
            windows=counted,
            calls=counted * self.calls,
            resolution_us=float(np.ptp(np.asarray(self.null_ms)[used])) * 1e3 / self.calls,
            distribution=source,
            cache=cache,
            flags=flags,
            single_call_ms=median_single_call_ms(self.single),
            relative_ci=narrow if math.isfinite(narrow) and not bounded else None,
            launch_overhead_correction_us=self.launch_shift_ms * 1e3,
            launches=self.launches,
            stop_reason=self.stopped.value if self.stopped is not None else None,
            gpu_state=self.gpu_state,
            window_ms=[rounded(ms) for ms in net[listed] / self.calls],
            excluded_windows=[position for position, window in enumerate(listed) if not used[window]],
        )

    def _estimate(self, windows: Sample) -> Estimate:
        """The windows' time; for a candidate the check windows' time if that is significantly longer."""
        if not self.is_candidate:
            return Estimate(float(windows.mean()))
        return slowest(self._single_call(windows), self._deferred_readback(windows))

    def _deferred_readback(self, windows: Sample) -> Estimate:
        return reconcile_deferred_readback(windows, self.deferred_readback, self.kind, self.launch_shift_ms)

    def _single_call(self, windows: Sample) -> Estimate:
        """The windows' time, or a single call's if that is significantly longer."""
        single = single_call(self.single, self.kind)
        if single is None:
            return Estimate(float(windows.mean()))
        allowance = self.reference.single_call_allowance if self.reference is not None and self.gated else None
        host = host_jitter(self.single, self.kind, statistics.median(self.null_ms) / self.calls)
        return reconcile_single_call(windows, single, host, allowance, 1 if self.launches is None else self.launches)

    @property
    def single_call_allowance(self) -> SingleCallAllowance | None:
        """The extra time of an honest single call, with this record as the reference; None without the gate."""
        return (
            single_call_allowance(Measured.of(self._undisturbed_ms), self.single, self.weight_bytes)
            if self.gated
            else None
        )

    def _record_events(self, window: Window, null: Clock) -> None:
        """Stores the runner's own times of its calls with the window's time. A single call has no distribution."""
        if window.call_ms and self.calls > 1:
            self._event_samples.append((window.elapsed_ms - null.elapsed_ms, window.call_ms))

    def _event_shapes(self) -> tuple[list[Sample], list[Misfit]]:
        """Call times relative to their window's mean, and the windows whose call times do not fit the clock."""
        # On a host the overhead of a window varies by that much, which limits what the clock can check.
        clock_error_ms = max(self.null_ms) - min(self.null_ms) if not self.is_cuda and self.null_ms else 0.0
        return matching_event_shapes(self._event_samples, self.calls, clock_error_ms)
