"""Repeats null windows and the reference's windows after the candidate's process has ended, and says what it slowed.

A candidate can leave work on the device that slows those windows (profiling.integrity.interference).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.integrity.disagreement import CheckWindows
from profiling.integrity.interference import (
    FLAG_RATIO,
    HOST_PACE,
    host_sets_pace,
    max_null_ms,
    slow_rounds,
    slowed_by,
    unsure,
)
from profiling.results.estimate import early_starts, estimate, net_ms
from profiling.results.samples import KernelWindows, Samples
from profiling.stats.flags import duration, max_setup_ms
from profiling.window.timed_window import Clock, Window
from tasks.runtime.null_window_cache import NullKind, NullWindowCache

ISOLATED_ROUNDS = 3
"""Number of rounds without the candidate."""
MOST_ROUNDS = 12
"""Maximum number of such rounds, if the first ones are not conclusive."""
DISTURBED, DISTURBED_MS = 1.5, 0.1
"""Ratio to the usual time of a null window, plus a time in ms, above which the card was disturbed from outside."""
CARD_DISTURBED = (
    "null windows took {now} without this kernel's process, where {usual} is usual on this card: it was disturbed from "
    "outside, and the times may be too long"
)
NO_LONGER = "no more than the latter and noise is subtracted from the times"
BY_PACE = (
    "a host launches at two paces, which may be the cause; the speed-up counts the shorter time, and its interval "
    "covers both"
)
UNKNOWN = "the speed-up is unknown"


Check = Literal["single", "deferred_readback"]
"""The check windows in question, as `KernelWindows` names them."""


@dataclass(frozen=True)
class CheckNullWindows:
    """The null windows of check windows next to the candidate, and a function that measures one more.

    `tolerance_ms`: they take at most that much longer next to an honest process."""

    kind: NullKind
    check: Check
    measure: Callable[[], Clock]
    tolerance_ms: float

    def of(self, windows: KernelWindows) -> CheckWindows:
        """These check windows of a kernel."""
        return windows.single if self.check == "single" else windows.deferred_readback

    def limited(self, windows: KernelWindows, isolated: Sequence[Clock]) -> KernelWindows:
        """The kernel's windows with null windows of at most what they take without the candidate, plus noise."""
        limited = self.of(windows).with_limited_nulls(isolated, self.tolerance_ms)
        return (
            replace(windows, single=limited) if self.check == "single" else replace(windows, deferred_readback=limited)
        )


class NullWindowRecheck:
    """Measures without the candidate what its process may have slowed, and bounds what that may gain it.

    The steps are `can_skip`, or else `measure`, `store` and `apply`. If cached null windows match those next to the
    candidate, nothing has to be measured. `flags` names what the candidate slowed.

    - `kind`: of the null windows next to the candidate's usual windows.
    - `windows`: of the reference (if there is one) and the candidate, by role in that order.
    - `measure_nulls` runs a null window for each role; `measure_reference` runs a window of the reference, and returns
      None if that can no longer run.
    - `until`: time after which no additional rounds run (time.monotonic).
    """

    def __init__(
        self,
        kind: NullKind,
        windows: dict[str, KernelWindows],
        measure_nulls: Callable[[], dict[str, Clock]],
        measure_reference: Callable[[], Window | None] = lambda: None,
        *,
        others: Sequence[CheckNullWindows] = (),
        until: float = math.inf,
    ) -> None:
        self._kind = kind
        self._windows = dict(windows)
        *references, self._own_role = windows
        self._reference_role = references[0] if references else None
        self._measure_nulls = measure_nulls
        self._measure_reference = measure_reference
        self._null: dict[str, list[Clock]] = {role: [] for role in windows}
        self._others = [other for other in others if other.of(self._own).elapsed_ms]
        self._others_null: list[list[Clock]] = [[] for _ in self._others]
        self._until = until
        first = next(iter(windows.values())).usual
        self._reference_isolated = Samples(replace(first.setup, is_candidate=False))
        self.flags: list[Flag] = []

    def can_skip(self, cache: NullWindowCache) -> bool:
        """Whether the null windows next to the candidate match cached ones, so that nothing would change.

        It is always False with a reference, whose isolated time is never cached.
        """
        if self._reference_role is not None:
            return False
        own, others = cache.get(self._kind), [cache.get(other.kind) for other in self._others]
        if min(map(len, (own, *others))) < ISOLATED_ROUNDS:
            return False
        usual, mean_ms, own_ms = self._own.usual, float(net_ms(self._own).mean()), _elapsed_ms(own)
        return (
            not unsure(usual.null_ms, own_ms, usual.setup.kind, usual.elapsed_ms, mean_ms, once=True)
            and max(usual.null_ms) <= max_null_ms(own_ms, usual.setup.kind, mean_ms)
            and max(usual.null_setup_ms) <= max_setup_ms(_setup_ms(own))
            and all(
                other.of(self._own).null_needs_no_limit(clocks, other.tolerance_ms)
                for other, clocks in zip(self._others, others, strict=True)
            )
        )

    def store(self, cache: NullWindowCache, *, alone: bool) -> None:
        """Caches the measured null windows for later jobs, if they ran `alone`: a live process may have slowed them.

        Null windows that took far longer than usual on this card are not cached and get a flag.
        """
        now, usual_ms = self._null[self._own_role], cache.usual_ms(self._kind)
        cache.note_usual(self._kind, now)
        if usual_ms is not None and (now_ms := statistics.median(_elapsed_ms(now))) > _disturbed_ms(usual_ms):
            message = CARD_DISTURBED.format(now=duration(now_ms), usual=duration(usual_ms))
            data = {"null_window_ms": now_ms, "usual_null_window_ms": usual_ms}
            self.flags.append(Flag(FlagCode.GPU_DISTURBED, message, data))
        elif alone:
            cache.store(self._kind, now)
            for other, clocks in zip(self._others, self._others_null, strict=True):
                cache.store(other.kind, clocks)

    def measure(self) -> None:
        """Runs the windows. A reference that can no longer run gets a flag."""
        for _ in range(ISOLATED_ROUNDS):
            for other, clocks in zip(self._others, self._others_null, strict=True):
                clocks.append(other.measure())
            if not self._round():
                in_time = time.monotonic() < self._until
                code = FlagCode.REFERENCE_NOT_RERUN if in_time else FlagCode.REFERENCE_RERUN_TIMEOUT
                self.flags.append(Flag.of(code))
                return
        for more in range(MOST_ROUNDS - ISOLATED_ROUNDS):
            of_reference = self._unsure_of_reference(once=more > 0)
            if not (of_reference or self._unsure_of_nulls(once=more > 0)) or time.monotonic() > self._until:
                return
            if not of_reference:
                self._null_round()
            elif not self._round():
                return

    def apply(self) -> dict[str, KernelWindows]:
        """The windows by role: null windows count no longer than without the candidate, and slow rounds not at all."""
        own_ms = list(net_ms(self._own))
        for role, windows in self._windows.items():
            before = early_starts(windows.usual).added_ms
            usual = self._with_limited_nulls(role, windows)
            if not np.allclose(before, early_starts(usual).added_ms):
                self.flags.append(Flag.of(FlagCode.NULL_WINDOWS_PREPARED_LATE))
            self._windows[role] = replace(windows, usual=usual)
        for other, clocks in zip(self._others, self._others_null, strict=True):
            before_ms = self._check_correction_ms()
            self._windows[self._own_role] = other.limited(self._own, clocks)
            if self._reference_role is not None and other.check == "single" and self._own.comparable_singles:
                reference = self._windows[self._reference_role]
                self._windows[self._reference_role] = other.limited(reference, clocks)
            if self._check_correction_ms() > before_ms:
                self.flags.append(Flag.of(FlagCode.CHECK_WINDOWS_SLOWED))
        if self._reference_role is not None and self._reference_is_measured:
            self._windows[self._reference_role] = self._judged_reference(self._windows[self._reference_role], own_ms)
        return dict(self._windows)

    @property
    def _own(self) -> KernelWindows:
        return self._windows[self._own_role]

    def _check_correction_ms(self) -> float:
        """The time that check windows add to each of the candidate's usual windows, in ms."""
        *references, own = self._windows.values()
        return estimate(own, *references).correction.added_ms

    def _with_limited_nulls(self, role: str, windows: KernelWindows) -> Samples:
        """The usual windows, with null windows of at most what they take without the candidate, plus noise."""
        usual, kind, isolated_ms = windows.usual, windows.usual.setup.kind, _elapsed_ms(self._null[role])
        net = float(net_ms(windows).mean())
        slowed = slowed_by(usual.null_ms, isolated_ms, kind, self._own.usual.elapsed_ms, net)
        if slowed is not None and slowed > FLAG_RATIO[kind]:
            self._flag(FlagCode.NULL_WINDOWS_SLOWED, "null windows", usual.null_ms, isolated_ms, NO_LONGER)
        # A null window that the submission delays hides work that it does before the release.
        setup_ms = max_setup_ms(_setup_ms(self._null[role]))
        usual = replace(usual, null_setup_ms=[min(ms, setup_ms) for ms in usual.null_setup_ms])
        if role != self._own_role and not self._reference_is_measured:
            return usual  # Both may have been slowed alike: shorter null windows would make the reference slower.
        limit_ms = max_null_ms(isolated_ms, kind, net)
        return replace(usual, null_ms=[min(ms, limit_ms) for ms in usual.null_ms])

    def _judged_reference(self, reference: KernelWindows, own_ms: Sequence[float]) -> KernelWindows:
        """The reference's windows without its slow rounds; flagged if most are slow, or the means differ."""
        usual, kind = reference.usual, reference.usual.setup.kind
        concurrent_ms, isolated_ms = list(net_ms(reference)), self._reference_isolated_ms
        slowed = slowed_by(concurrent_ms, isolated_ms, kind, own_ms)
        slow = slow_rounds(usual.elapsed_ms, self._reference_isolated.elapsed_ms, kind)
        if slowed is None and 2 * len(slow) <= len(concurrent_ms):
            return replace(reference, slow_rounds=tuple(slow))
        if slowed is not None and slowed <= HOST_PACE and self._host_sets_reference_pace:
            self._flag(FlagCode.HOST_JITTER, "windows of the reference", concurrent_ms, isolated_ms, BY_PACE)
            return replace(reference, host_pace_ratio=slowed)
        # Without a significant difference, a disturbance of the device may be the cause.
        code = FlagCode.REFERENCE_SLOWED if slowed is not None else FlagCode.REFERENCE_DISTURBED
        self._flag(code, "windows of the reference", concurrent_ms, isolated_ms, UNKNOWN)
        return reference

    def _unsure_of_nulls(self, *, once: bool) -> bool:
        """Whether more null windows may change the result."""
        return any(
            unsure(
                *(windows.usual.null_ms, _elapsed_ms(self._null[role]), windows.usual.setup.kind),
                *(self._own.usual.elapsed_ms, float(net_ms(windows).mean())),
                once=once,
            )
            for role, windows in self._windows.items()
        )

    def _unsure_of_reference(self, *, once: bool) -> bool:
        """Whether more windows of the reference may change the result."""
        if self._reference_role is None:
            return False
        reference, own_ms = self._windows[self._reference_role], list(net_ms(self._own))
        concurrent_ms, kind = list(net_ms(reference)), reference.usual.setup.kind
        # At the host's pace, a significant difference is none between its two paces: more windows may see both.
        once = once or self._host_sets_reference_pace
        return unsure(concurrent_ms, self._reference_isolated_ms, kind, own_ms, once=once)

    @property
    def _host_sets_reference_pace(self) -> bool:
        setup = self._reference_isolated.setup
        launches = setup.launches * setup.calls if setup.launches is not None else None
        return host_sets_pace(self._reference_isolated_ms, setup.kind, launches)

    @property
    def _reference_isolated_ms(self) -> list[float]:
        return list(net_ms(KernelWindows(self._reference_isolated)))

    @property
    def _reference_is_measured(self) -> bool:
        return len(self._reference_isolated.elapsed_ms) >= ISOLATED_ROUNDS

    def _round(self) -> bool:
        """Runs a null window for each kernel and one window of the reference; False if that can no longer run."""
        null = self._null_round()
        if self._reference_role is None:
            return True
        window = self._measure_reference()
        if window is not None:
            self._reference_isolated.add(window, null[self._reference_role])
        return window is not None

    def _null_round(self) -> dict[str, Clock]:
        null = self._measure_nulls()
        for role, clock in null.items():
            self._null[role].append(clock)
        return null

    def _flag(
        self,
        code: FlagCode,
        what: str,
        concurrent_ms: Sequence[float],
        isolated_ms: Sequence[float],
        interpretation: str,
    ) -> None:
        # Means, as in slowed_by: the median hides windows that were slowed now and then.
        means = {"concurrent_ms": statistics.mean(concurrent_ms), "isolated_ms": statistics.mean(isolated_ms)}
        message = (
            f"{what} took {duration(means['concurrent_ms'])} beside this kernel's process and "
            f"{duration(means['isolated_ms'])} without it: {interpretation}"
        )
        if message not in (flag.message for flag in self.flags):
            self.flags.append(Flag(code, message, dict(means)))


def _disturbed_ms(usual_ms: float) -> float:
    """Maximum time of null windows on an undisturbed card, in ms."""
    return DISTURBED * usual_ms + DISTURBED_MS


def _elapsed_ms(clocks: Sequence[Clock]) -> list[float]:
    return [clock.elapsed_ms for clock in clocks]


def _setup_ms(clocks: Sequence[Clock]) -> list[float]:
    return [clock.setup_ms for clock in clocks]
