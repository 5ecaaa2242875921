"""The windows of one contender, and the timing that they add up to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from domain.flags import UPPER_BOUND
from domain.result import Timing
from profiling.integrity.deferred_readback import believed_held_back
from profiling.integrity.disagreement import Believed, Measured, OtherWindows, slowest
from profiling.integrity.single_call import (
    LEAST_LAUNCH_MS,
    Honest,
    believed_alone,
    by_host,
    honest,
    shown_ms,
    single_call,
)
from profiling.stats.call_distribution import fitting_marks
from profiling.stats.downsample import places, rounded
from profiling.stats.flags import HeadStart, Misfit, events_misfit, head_start, most_ready_ms
from profiling.stats.process_variance import process_apart_ms
from profiling.stats.statistics import DEVIATIONS, Sample, half_width, resolved, runtime_stats, undisturbed
from profiling.stats.stopping_rule import Stop
from profiling.window.timed_window import Clock, Window

METHODS = {
    (True, True): "gated_window",
    (True, False): "streamed_window",
    (False, False): "host_window",
}


class Correction(NamedTuple):
    """In ms a window: what is to be added, the standard error of that, and between what it may be, all one but where
    the host may have part in it."""

    added_ms: float = 0.0
    error_ms: float = 0.0
    span_ms: tuple[float, float] = (0.0, 0.0)


@dataclass
class TimeRecord:
    """One contender's windows, all with the same number of calls, each with a trusted null window beside it.

    What a window costs when nothing is computed in it is taken off pair by pair: both drift together, and the null
    windows' own noise is in the spread of what is left. That no submission made null windows longer is found out
    afterwards (profiling.integrity.interference). `launch_shift_ms` is what a launch takes longer in this process than
    on this card as a rule, measured before there was a submission in it; taken off once a call. `slowed` is how many
    times as long the windows took beside the other contender as without it. `launches` are those of a call by the
    runner's own count (None: unknown), and only tell how far off a time may be. `ready_ms` is what making ready took
    for this contender's windows, `null_ready_ms` for the null windows beside them: what it took longer is work before
    the gun, and counts where `charged`, as does what other windows take longer. A reference is not: the candidate's
    process could keep its windows from being ready, or the device busy in those alone.
    `single` are windows of one call, `held_back` those whose answers were asked for when their calls were over. By the
    `reference` it is known what an honest call by itself takes longer, for whose task `weight_bytes` are read.
    """

    calls: int
    is_cuda: bool
    gated: bool
    launch_shift_ms: float = 0.0
    launches: int | None = 1
    charged: bool = True
    reference: TimeRecord | None = None
    weight_bytes: int = 0
    elapsed_ms: list[float] = field(default_factory=list)
    null_ms: list[float] = field(default_factory=list)
    ready_ms: list[float] = field(default_factory=list)
    null_ready_ms: list[float] = field(default_factory=list)
    single: OtherWindows = field(default_factory=partial(OtherWindows, paired=False))
    held_back: OtherWindows = field(default_factory=OtherWindows)
    flags: list[str] = field(default_factory=list)
    gpu_state: dict[str, Any] | None = None
    stopped: Stop | None = None
    slowed: float = 1.0
    _marked: list[tuple[float, list[float]]] = field(default_factory=list)

    def warm_up(self, window: Window, null: Clock) -> None:
        """A window that gives the distribution alone; on a GPU its marks make it longer than the others."""
        self._note_marks(window, null)

    def add(self, window: Window, null: Clock) -> None:
        """A window and the null window beside it."""
        self.elapsed_ms.append(window.elapsed_ms)
        self.null_ms.append(null.elapsed_ms)
        self.ready_ms.append(window.ready_ms)
        self.null_ready_ms.append(null.ready_ms)
        self._note_marks(window, null)

    def drop_last(self) -> None:
        """The last window is to be taken again."""
        for taken in (self.elapsed_ms, self.null_ms, self.ready_ms, self.null_ready_ms):
            taken.pop()

    def correct_null(self, alone_ms: Sequence[float]) -> None:
        """Null windows that the submission slowed count for what they take without it."""
        self.null_ms = [statistics.median(alone_ms)] * len(self.null_ms)

    def correct_ready(self, alone_ms: Sequence[float]) -> bool:
        """Null windows that the submission kept from being ready hide none of its work; whether they had hidden any.

        Each counts for what it takes without it at most, as far as that can be told.
        """
        before = self._head_start.added_ms
        most = most_ready_ms(alone_ms)
        self.null_ready_ms = [min(taken, most) for taken in self.null_ready_ms]
        return not np.allclose(before, self._head_start.added_ms)

    def null_was_ready(self, alone_ms: Sequence[float]) -> bool:
        """Whether `correct_ready` would leave every null window as it is."""
        return max(self.null_ready_ms) <= most_ready_ms(alone_ms)

    @property
    def net_ms(self) -> Sample:
        """Each window's clock less its null window's. Noise may take a short one below zero."""
        net: Sample = np.asarray(self.elapsed_ms) - np.asarray(self.null_ms) - self.calls * self.launch_shift_ms
        return (net + self._head_start.added_ms) / self.slowed

    @property
    def kind(self) -> str:
        """How its windows were taken: gated, streamed, or on the host."""
        return "host" if not self.is_cuda else "gated" if self.gated else "streamed"

    @property
    def credited(self) -> float:
        """What null windows take off, as a part of the windows: of those that count."""
        kept = undisturbed(self.net_ms)
        return float(np.asarray(self.null_ms)[kept].sum() / np.asarray(self.elapsed_ms)[kept].sum())

    @property
    def held_up(self) -> bool:
        """Whether windows were made ready later beside this contender than beside an idle process, beyond noise."""
        return self._head_start.flag is not None

    @property
    def after_gun_ms(self) -> float:
        """What a call takes from the gun on: without whatever was worked ahead of it."""
        net = np.asarray(self.elapsed_ms) - np.asarray(self.null_ms) - self.calls * self.launch_shift_ms
        return float(np.median(net)) / self.calls / self.slowed

    @property
    def _head_start(self) -> HeadStart:
        """What was worked ahead of the gun in each window. On the host, where others run at the same time: unknown."""
        early = np.asarray(self.ready_ms) - np.asarray(self.null_ready_ms)
        counts = self.is_cuda and self.charged and early.size > 0
        return head_start(early) if counts else HeadStart(np.zeros(early.size))

    @property
    def launches_at_most(self) -> int:
        """A call's launches: as the runner counts, as far as they fit into its time; as many as fit where it cannot."""
        windows = self._undisturbed_ms
        fitting = max(int(float(windows.mean()) / LEAST_LAUNCH_MS), 1) if len(windows) else 1
        return min(max(self.launches, 1), fitting) if self.launches is not None else fitting

    def apart_ms(self, unlike_ms: float) -> float:
        """What its windows may differ by in another process (`process_apart_ms`); on a host that is not known."""
        return process_apart_ms(self.calls, self.launches_at_most, unlike_ms) if self.is_cuda else 0.0

    @property
    def half_width(self) -> float:
        """How narrow the 95 % interval of the time in this process is so far, relative to it."""
        net = self.net_ms
        return half_width(net[undisturbed(net)])

    @property
    def _undisturbed_ms(self) -> Sample:
        """A call's time in each window that nobody broke into."""
        net = self.net_ms
        return net[undisturbed(net)] / self.calls

    @property
    def wants_singles(self) -> bool:
        """Whether more windows of one call may tell what these leave open."""
        return self.charged and self._single_call(self._undisturbed_ms).unsure

    @property
    def wants_held_back(self) -> bool:
        """Whether more windows that are held back may tell what these leave open."""
        return self._held_back(self._undisturbed_ms).unsure

    @property
    def correction(self) -> Correction:
        """What is to be added to each window where others take longer beyond doubt."""
        windows = self._undisturbed_ms
        found = self._believed(windows)
        if found.flag is None:
            return Correction()
        times_ms = found.time_ms, *(found.span_ms or (found.time_ms, found.time_ms))
        added_ms, least_ms, most_ms = (self.calls * (time_ms - float(windows.mean())) for time_ms in times_ms)
        return Correction(added_ms, self.calls * found.error_ms, (least_ms, most_ms))

    def timing(self, cache: str) -> Timing:
        """The timing. Its level is the referee's alone; the runner's events give only the distribution around it."""
        net, kept = self.net_ms, undisturbed(self.net_ms)
        windows = net[kept] / self.calls
        counted = len(windows)
        shown = places(len(net))
        level, bounded = resolved(windows)
        shapes, misfits = self._marks()
        shape = np.concatenate(shapes) if shapes and not misfits and not bounded else None
        flags = list(self.flags)
        if bounded:
            flags.append(f"too short for what a window can resolve here: {UPPER_BOUND}, not a measurement")
        if (misfit := events_misfit(misfits, len(self._marked))) is not None:
            flags.append(misfit)
        if (flag := self._head_start.flag) is not None:
            flags.append(flag)
        if (longer := self._believed(windows)).flag is not None:
            level, shape = longer.time_ms, None
            windows = np.full(1, level)
            flags.append(longer.flag)
        if counted < len(net):
            flags.append(f"{len(net) - counted} of {len(net)} windows were disturbed from outside and left out")
        # A distribution that reaches below zero would be one of noise.
        alone = windows if not bounded and windows.min() > 0 else np.full(1, level)
        source = "events" if shape is not None else "windows" if len(alone) > 1 else "none"
        narrow = half_width(windows)
        if math.isfinite(narrow):
            narrow = math.hypot(narrow, DEVIATIONS * self.apart_ms(abs(self.launch_shift_ms)) / (self.calls * level))
        return Timing(
            method=METHODS[self.is_cuda, self.gated],
            stats=runtime_stats(alone if shape is None else level * shape),
            latency_ms=level,
            calls_per_window=self.calls,
            windows=counted,
            calls=counted * self.calls,
            resolution_us=float(np.ptp(np.asarray(self.null_ms)[kept])) * 1e3 / self.calls,
            distribution=source,
            cache=cache,
            flags=flags,
            single_call_ms=shown_ms(self.single),
            relative_ci=narrow if math.isfinite(narrow) and not bounded else None,
            launch_overhead_correction_us=self.launch_shift_ms * 1e3,
            launches=self.launches,
            stop_reason=self.stopped.value if self.stopped is not None else None,
            gpu_state=self.gpu_state,
            window_ms=[rounded(ms) for ms in net[shown] / self.calls],
            excluded_windows=[place for place, window in enumerate(shown) if not kept[window]],
        )

    def _believed(self, windows: Sample) -> Believed:
        """The windows' time, or what other windows take beyond doubt where that is longer and counts."""
        if not self.charged:
            return Believed(float(windows.mean()))
        return slowest(self._single_call(windows), self._held_back(windows))

    def _held_back(self, windows: Sample) -> Believed:
        return believed_held_back(windows, self.held_back, self.kind, self.launch_shift_ms)

    def _single_call(self, windows: Sample) -> Believed:
        """The windows' time, or a single call's where that is longer beyond doubt."""
        single = single_call(self.single, self.kind)
        if single is None:
            return Believed(float(windows.mean()))
        beside = self.reference.honest if self.reference is not None and self.gated else None
        host = by_host(self.single, self.kind, statistics.median(self.null_ms) / self.calls)
        return believed_alone(windows, single, host, beside, 1 if self.launches is None else self.launches)

    @property
    def honest(self) -> Honest | None:
        """What an honest contender's calls take longer by themselves; None where they were not behind the gate."""
        return honest(Measured.of(self._undisturbed_ms), self.single, self.weight_bytes) if self.gated else None

    def _note_marks(self, window: Window, null: Clock) -> None:
        """The runner's own times of its calls, beside the window's. One call has no shape."""
        if window.call_ms and self.calls > 1:
            self._marked.append((window.elapsed_ms - null.elapsed_ms, window.call_ms))

    def _marks(self) -> tuple[list[Sample], list[Misfit]]:
        """Call times relative to their window's mean; and the windows whose call times do not fit the clock."""
        # What a window costs by itself differs by that much on the host, so that no clock knows better.
        unsure_ms = max(self.null_ms) - min(self.null_ms) if not self.is_cuda and self.null_ms else 0.0
        return fitting_marks(self._marked, self.calls, unsure_ms)
