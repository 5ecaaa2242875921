"""Repeats null windows and the reference's windows after the candidate's process has ended, and corrects the times.

A candidate can leave work on the device that slows those windows (profiling.integrity.interference).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.fault import KernelFault
from domain.flags import TIMEOUT_NEAR, Flag, FlagCode
from domain.result import Timing
from profiling.integrity.disagreement import CheckWindows
from profiling.integrity.interference import FLAG_RATIO, limited, slowed_by, undisturbed_by_submission, unsure
from profiling.results.samples import TimeRecord
from profiling.stats.flags import duration
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, GateClosed
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.null_window_cache import NullKind, NullWindowCache
from tasks.timing.allocation_shuffle import shuffle_allocations

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
REFERENCE_NOT_RERUN = Flag(
    FlagCode.REFERENCE_NOT_RERUN,
    "the reference could not be run once more without this kernel, which may have slowed it",
)
REFERENCE_RERUN_TIMEOUT = Flag(
    FlagCode.REFERENCE_RERUN_TIMEOUT,
    f"the reference was not run once more without this kernel, which may have slowed it, as {TIMEOUT_NEAR}",
)
PREPARED_LATE = Flag(
    FlagCode.NULL_WINDOWS_PREPARED_LATE,
    "null windows were made ready later beside this kernel's process than without it, in rounds in which its own were "
    "late too: what that hid is added to its time",
)
CHECKS_SLOWED = Flag(
    FlagCode.CHECK_WINDOWS_SLOWED,
    "null windows by which its time was checked took longer beside this kernel's process than without it: what that "
    "hid is added to its time",
)
WITHOUT_IT = (
    "null windows count for what they take without the candidate's process, which is less by no more than is honest"
)


@dataclass(frozen=True)
class CheckNullWindows:
    """The null windows of check windows next to the candidate, and a function that measures one more.

    `tolerance_ms`: they take at most that much longer next to an honest process. `reference_windows` are the
    reference's check windows, if they share the same null windows."""

    kind: NullKind
    record: TimeRecord
    windows: CheckWindows
    measure: Callable[[], Clock]
    tolerance_ms: float
    reference_windows: Sequence[CheckWindows] = ()


class NullWindowRecheck:
    """Measures without the candidate what its process may have slowed, and corrects the records by that.

    The steps are `can_skip`, or else `measure`, `store` and `apply`. If cached null windows match those next to the
    candidate, nothing has to be measured. `flags` names what the candidate slowed. `corrected` says whether a record
    changed; a small correction changes a record, or its `method`, without a flag. Additional rounds run until the time
    `until` (time.monotonic).
    """

    def __init__(
        self,
        kernel_runs: list[KernelRun],
        slots: dict[str, Slots],
        records: dict[str, TimeRecord],
        null_windows: Callable[[], dict[str, Clock]],
        others: Sequence[CheckNullWindows] = (),
        until: float = math.inf,
    ) -> None:
        self._kernel_runs = kernel_runs
        self._reference = kernel_runs[0] if len(kernel_runs) > 1 else None
        self._own_role = kernel_runs[-1].role
        self._own = records[self._own_role]
        self._slots = slots
        self._records = records
        self._null_windows = null_windows
        self._null: dict[str, list[Clock]] = {role: [] for role in records}
        self._others = [other for other in others if other.windows.elapsed_ms]
        self._others_null: list[list[Clock]] = [[] for _ in self._others]
        self._until = until
        like = records[kernel_runs[0].role]
        self._reference_isolated = TimeRecord(
            like.calls, like.is_cuda, gated=like.gated, launch_shift_ms=like.launch_shift_ms, is_candidate=False
        )
        self.flags: list[Flag] = []
        self._replaced_nulls: set[str] = set()
        self.corrected = False

    def can_skip(self, cache: NullWindowCache) -> bool:
        """Whether the null windows next to the candidate match cached ones, so that nothing would be corrected.

        It is always False with a reference, whose isolated time is never cached.
        """
        if self._reference is not None:
            return False
        own, others = cache.get(self._kind), [cache.get(other.kind) for other in self._others]
        if min(map(len, (own, *others))) < ISOLATED_ROUNDS:
            return False
        record, net_ms = self._own, float(self._own.net_ms.mean())
        return (
            undisturbed_by_submission(record.null_ms, _elapsed_ms(own), record.kind, record.elapsed_ms, net_ms)
            and record.null_setup_needs_no_correction([clock.setup_ms for clock in own])
            and all(
                other.windows.null_needs_no_correction(clocks, other.tolerance_ms)
                for other, clocks in zip(self._others, others, strict=True)
            )
        )

    def store(self, cache: NullWindowCache) -> None:
        """Caches the measured null windows for later jobs, unless a process of this job is alive and may slow them.

        Null windows that took far longer than usual on this card are not cached and get a flag.
        """
        now, usual_ms = self._null[self._own_role], cache.usual_ms(self._kind)
        cache.note_usual(self._kind, now)
        if usual_ms is not None and (now_ms := statistics.median(_elapsed_ms(now))) > _disturbed_ms(usual_ms):
            message = CARD_DISTURBED.format(now=duration(now_ms), usual=duration(usual_ms))
            data = {"null_window_ms": now_ms, "usual_null_window_ms": usual_ms}
            self.flags.append(Flag(FlagCode.GPU_DISTURBED, message, data))
            return
        if any(kernel_run.session is not None for kernel_run in self._kernel_runs):
            return
        cache.store(self._kind, now)
        for other, clocks in zip(self._others, self._others_null, strict=True):
            cache.store(other.kind, clocks)

    def measure(self) -> None:
        """Runs the windows. A reference that can no longer run gets a flag and no correction."""
        for _ in range(ISOLATED_ROUNDS):
            for other, clocks in zip(self._others, self._others_null, strict=True):
                clocks.append(other.measure())
            if not self._round():
                self.flags.append(REFERENCE_NOT_RERUN if time.monotonic() < self._until else REFERENCE_RERUN_TIMEOUT)
                return
        for more in range(MOST_ROUNDS - ISOLATED_ROUNDS):
            of_reference = self._unsure_of_reference(once=more > 0)
            if not (of_reference or self._unsure_of_nulls(once=more > 0)) or time.monotonic() > self._until:
                return
            if not of_reference:
                self._null_round()
            elif not self._round():
                return

    def apply(self) -> None:
        """Corrects the records for what the candidate's process slowed."""
        own_ms = tuple(self._own.elapsed_ms)
        for role, record in self._records.items():
            self._correct_null(role, record, own_ms)
            if record.correct_null_setup([clock.setup_ms for clock in self._null[role]]):
                self.flags.append(PREPARED_LATE)
        for other, clocks in zip(self._others, self._others_null, strict=True):
            before_ms = other.record.correction.added_ms
            for windows in (other.windows, *other.reference_windows):
                windows.correct_null(clocks, other.tolerance_ms)
            if other.record.correction.added_ms > before_ms:
                self.flags.append(CHECKS_SLOWED)
        if self._reference is not None and self._reference_is_measured:
            self._correct_reference(self._records[self._reference.role], own_ms)
        self.corrected |= bool(self.flags)

    def method(self, timing: Timing, role: str) -> str:
        """The method of that role's timing after `apply`."""
        return f"{timing.method}; {WITHOUT_IT}" if role in self._replaced_nulls else timing.method

    def _correct_null(self, role: str, record: TimeRecord, own_ms: Sequence[float]) -> None:
        isolated_ms = self._null_ms(role)
        slowed = slowed_by(record.null_ms, isolated_ms, record.kind, own_ms, float(record.net_ms.mean()))
        if slowed is not None:
            if slowed > FLAG_RATIO[record.kind]:
                self._flag(FlagCode.NULL_WINDOWS_SLOWED, "null windows", record.null_ms, isolated_ms)
            else:
                self._replaced_nulls.add(role)
            record.correct_null(isolated_ms)
            self.corrected = True
        elif record is self._own or self._reference_is_measured:
            # Without isolated windows of the reference, its null windows stay: both may have been slowed alike.
            record.null_ms = self._limited(record.null_ms, isolated_ms, record.kind, [own_ms])

    def _correct_reference(self, record: TimeRecord, own_ms: Sequence[float]) -> None:
        concurrent_ms, isolated_ms = list(record.net_ms), list(self._reference_isolated.net_ms)
        slowed = slowed_by(concurrent_ms, isolated_ms, record.kind, list(self._own.net_ms))
        if slowed is not None:
            self._flag(FlagCode.REFERENCE_SLOWED, "windows of the reference", concurrent_ms, isolated_ms)
            record.interference_factor = slowed
        else:
            isolated_ms = self._reference_isolated.elapsed_ms
            # Unlike a null window, the reference may be slow now and then by itself.
            record.elapsed_ms = self._limited(record.elapsed_ms, isolated_ms, record.kind, [own_ms, isolated_ms])

    def _limited(
        self,
        concurrent_ms: list[float],
        isolated_ms: Sequence[float],
        kind: str,
        excess_samples_ms: list[Sequence[float]],
    ) -> list[float]:
        limited_ms = limited(concurrent_ms, isolated_ms, kind, excess_samples_ms)
        self.corrected |= limited_ms != concurrent_ms
        return limited_ms

    def _unsure_of_nulls(self, *, once: bool) -> bool:
        """Whether more null windows may change the result."""
        return any(
            unsure(
                *(record.null_ms, self._null_ms(role), record.kind),
                *(self._own.elapsed_ms, float(record.net_ms.mean())),
                once=once,
            )
            for role, record in self._records.items()
        )

    def _unsure_of_reference(self, *, once: bool) -> bool:
        """Whether more windows of the reference may change the result."""
        if self._reference is None:
            return False
        record, isolated = self._records[self._reference.role], self._reference_isolated
        return unsure(list(record.net_ms), list(isolated.net_ms), record.kind, list(self._own.net_ms), once=once)

    def _null_ms(self, role: str) -> list[float]:
        return _elapsed_ms(self._null[role])

    @property
    def _kind(self) -> NullKind:
        """The kind of the null windows next to the candidate's usual windows."""
        return NullKind.of(self._slots[self._own_role], gated=self._own.gated)

    @property
    def _reference_is_measured(self) -> bool:
        return len(self._reference_isolated.elapsed_ms) >= ISOLATED_ROUNDS

    def _round(self) -> bool:
        """Runs a null window for each kernel and one window of the reference; False if that can no longer run."""
        null = self._null_round()
        return self._reference is None or self._measure_reference(self._reference, null)

    def _null_round(self) -> dict[str, Clock]:
        null = self._null_windows()
        for role, clock in null.items():
            self._null[role].append(clock)
        return null

    def _measure_reference(self, reference: KernelRun, null: dict[str, Clock]) -> bool:
        record = self._records[reference.role]
        if reference.window_session is None or reference.session is None:
            return False
        try:
            # As in the windows next to the candidate: at a fixed address its time would be another.
            shuffle_allocations(reference, self._slots[reference.role], record)
            window = reference.window_session.window(self._slots[reference.role], gated=record.gated)
        except (KernelFault, GateClosed):
            return False
        self._reference_isolated.add(window, null[reference.role])
        return True

    def _flag(self, code: FlagCode, what: str, concurrent_ms: Sequence[float], isolated_ms: Sequence[float]) -> None:
        # Means, as in slowed_by: the median hides windows that were slowed now and then.
        means = {"concurrent_ms": statistics.mean(concurrent_ms), "isolated_ms": statistics.mean(isolated_ms)}
        message = (
            f"{what} took {duration(means['concurrent_ms'])} beside this kernel's process and "
            f"{duration(means['isolated_ms'])} without it: what it slowed is taken out of the times"
        )
        if message not in (flag.message for flag in self.flags):
            self.flags.append(Flag(code, message, dict(means)))


def _disturbed_ms(usual_ms: float) -> float:
    """Maximum time of null windows on an undisturbed card, in ms."""
    return DISTURBED * usual_ms + DISTURBED_MS


def _elapsed_ms(clocks: Sequence[Clock]) -> list[float]:
    return [clock.elapsed_ms for clock in clocks]
