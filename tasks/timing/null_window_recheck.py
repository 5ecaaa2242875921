"""When the candidate's process is gone: null windows and the reference's once more, without it beside them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.fault import KernelFault
from domain.flags import TIMEOUT_NEAR, Flag, FlagCode
from domain.result import Timing
from profiling.integrity.disagreement import OtherWindows
from profiling.integrity.interference import TOLD, alike, limited, slowed_by, unsure
from profiling.results.samples import TimeRecord
from profiling.stats.flags import duration
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, GateClosed
from tasks.runtime.kernel_run import Contender
from tasks.runtime.null_window_cache import KnownNulls, NullKind
from tasks.timing.allocation_shuffle import relocate

ALONE_ROUNDS = 3
MOST_ROUNDS = 12
"""Where the first ones leave open what was slowed."""
DISTURBED, DISTURBED_MS = 1.5, 0.1
"""So many times as long as usual, and so much more, no undisturbed card takes for a null window."""
CARD_DISTURBED = (
    "null windows took {now} without this kernel's process, where {usual} is usual on this card: it was disturbed from "
    "outside, and the times may be too long"
)
NOT_ALONE = Flag(
    FlagCode.REFERENCE_NOT_RERUN,
    "the reference could not be run once more without this kernel, which may have slowed it",
)
NO_TIME_ALONE = Flag(
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
class OtherNulls:
    """Null windows of another kind that were shot beside the candidate, and how one more is shot.

    Beside an honest one they take so much longer at most. `alike` are the reference's windows beside the same ones.
    """

    kind: NullKind
    record: TimeRecord
    windows: OtherWindows
    shoot: Callable[[], Clock]
    most_apart_ms: float
    alike: Sequence[OtherWindows] = ()


class Alone:
    """What the windows of a job's records take without the candidate. `flags` says what it slowed.

    Where its null windows are known, and were the same beside it, nothing need be shot (`is_known`). `corrected` is
    whether a record is another by that, which it may be with nothing to tell, or to tell of how its time was taken
    (`method`). More rounds than usual are shot as long as it is before `until` (time.monotonic).
    """

    def __init__(
        self,
        contenders: list[Contender],
        slots: dict[str, Slots],
        records: dict[str, TimeRecord],
        null_windows: Callable[[], dict[str, Clock]],
        others: Sequence[OtherNulls] = (),
        until: float = math.inf,
    ) -> None:
        self._contenders = contenders
        self._reference = contenders[0] if len(contenders) > 1 else None
        self._own_role = contenders[-1].role
        self._own = records[self._own_role]
        self._slots = slots
        self._records = records
        self._null_windows = null_windows
        self._null: dict[str, list[Clock]] = {role: [] for role in records}
        self._others = [other for other in others if other.windows.elapsed_ms]
        self._others_null: list[list[Clock]] = [[] for _ in self._others]
        self._until = until
        like = records[contenders[0].role]
        self._reference_alone = TimeRecord(
            like.calls, like.is_cuda, gated=like.gated, launch_shift_ms=like.launch_shift_ms, charged=False
        )
        self.flags: list[Flag] = []
        self._without_it: set[str] = set()
        self.corrected = False

    def is_known(self, known: KnownNulls) -> bool:
        """Whether null windows beside the candidate were as they are known to be without any submission.

        Then nothing would be corrected by more of them. What a reference takes alone is never known.
        """
        if self._reference is not None:
            return False
        own, others = known.of(self._kind), [known.of(other.kind) for other in self._others]
        if min(map(len, (own, *others))) < ALONE_ROUNDS:
            return False
        record = self._own
        return (
            alike(record.null_ms, _elapsed_ms(own), record.kind, record.elapsed_ms, float(record.net_ms.mean()))
            and record.null_was_ready([taken.ready_ms for taken in own])
            and all(
                other.windows.null_is_honest(clocks, other.most_apart_ms)
                for other, clocks in zip(self._others, others, strict=True)
            )
        )

    def keep(self, known: KnownNulls) -> None:
        """Has later jobs know what was shot, unless a process of this job still lives, which may have slowed it.

        Nor where it took far longer than is usual on this card, which is told.
        """
        now, usual_ms = self._null[self._own_role], known.usual_ms(self._kind)
        known.note(self._kind, now)
        if usual_ms is not None and (now_ms := statistics.median(_elapsed_ms(now))) > _disturbed_ms(usual_ms):
            message = CARD_DISTURBED.format(now=duration(now_ms), usual=duration(usual_ms))
            data = {"null_window_ms": now_ms, "usual_null_window_ms": usual_ms}
            self.flags.append(Flag(FlagCode.GPU_DISTURBED, message, data))
            return
        if any(contender.session is not None for contender in self._contenders):
            return
        known.keep(self._kind, now)
        for other, clocks in zip(self._others, self._others_null, strict=True):
            known.keep(other.kind, clocks)

    def shoot(self) -> None:
        """The windows. A reference that can no longer be run is told, and nothing is known about it."""
        for _ in range(ALONE_ROUNDS):
            for other, clocks in zip(self._others, self._others_null, strict=True):
                clocks.append(other.shoot())
            if not self._round():
                self.flags.append(NOT_ALONE if time.monotonic() < self._until else NO_TIME_ALONE)
                return
        for more in range(MOST_ROUNDS - ALONE_ROUNDS):
            of_reference = self._unsure_of_reference(once=more > 0)
            if not (of_reference or self._unsure_of_nulls(once=more > 0)) or time.monotonic() > self._until:
                return
            if not of_reference:
                self._null_round()
            elif not self._round():
                return

    def correct(self) -> None:
        """Takes out of the records what only the candidate's presence put there."""
        own_ms = tuple(self._own.elapsed_ms)
        for role, record in self._records.items():
            self._correct_null(role, record, own_ms)
            if record.correct_ready([taken.ready_ms for taken in self._null[role]]):
                self.flags.append(PREPARED_LATE)
        for other, clocks in zip(self._others, self._others_null, strict=True):
            believed_ms = other.record.correction.added_ms
            for windows in (other.windows, *other.alike):
                windows.correct_null(clocks, other.most_apart_ms)
            if other.record.correction.added_ms > believed_ms:
                self.flags.append(CHECKS_SLOWED)
        if self._reference is not None and self._reference_is_known:
            self._correct_reference(self._records[self._reference.role], own_ms)
        self.corrected |= bool(self.flags)

    def method(self, timing: Timing, role: str) -> str:
        """How that contender's time was taken, after `correct`."""
        return f"{timing.method}; {WITHOUT_IT}" if role in self._without_it else timing.method

    def _correct_null(self, role: str, record: TimeRecord, own_ms: Sequence[float]) -> None:
        alone_ms = self._null_ms(role)
        slowed = slowed_by(record.null_ms, alone_ms, record.kind, own_ms, float(record.net_ms.mean()))
        if slowed is not None:
            if slowed > TOLD[record.kind]:
                self._tell(FlagCode.NULL_WINDOWS_SLOWED, "null windows", record.null_ms, alone_ms)
            else:
                self._without_it.add(role)
            record.correct_null(alone_ms)
            self.corrected = True
        elif record is self._own or self._reference_is_known:
            # A reference that could not be run alone keeps them: they may have been slowed as its own windows were.
            record.null_ms = self._limited(record.null_ms, alone_ms, record.kind, [own_ms])

    def _correct_reference(self, record: TimeRecord, own_ms: Sequence[float]) -> None:
        beside_ms, alone_ms = list(record.net_ms), list(self._reference_alone.net_ms)
        slowed = slowed_by(beside_ms, alone_ms, record.kind, list(self._own.net_ms))
        if slowed is not None:
            self._tell(FlagCode.REFERENCE_SLOWED, "windows of the reference", beside_ms, alone_ms)
            record.slowed = slowed
        else:
            alone_ms = self._reference_alone.elapsed_ms
            # It may be slow now and then by itself, as a null window is not.
            record.elapsed_ms = self._limited(record.elapsed_ms, alone_ms, record.kind, [own_ms, alone_ms])

    def _limited(
        self, beside_ms: list[float], alone_ms: Sequence[float], kind: str, likewise_ms: list[Sequence[float]]
    ) -> list[float]:
        found = limited(beside_ms, alone_ms, kind, likewise_ms)
        self.corrected |= found != beside_ms
        return found

    def _unsure_of_nulls(self, *, once: bool) -> bool:
        """Whether more null windows may tell more."""
        return any(
            unsure(
                *(record.null_ms, self._null_ms(role), record.kind),
                *(self._own.elapsed_ms, float(record.net_ms.mean())),
                once=once,
            )
            for role, record in self._records.items()
        )

    def _unsure_of_reference(self, *, once: bool) -> bool:
        """Whether more windows of the reference may, which take longer."""
        if self._reference is None:
            return False
        beside, alone = self._records[self._reference.role], self._reference_alone
        return unsure(list(beside.net_ms), list(alone.net_ms), beside.kind, list(self._own.net_ms), once=once)

    def _null_ms(self, role: str) -> list[float]:
        return _elapsed_ms(self._null[role])

    @property
    def _kind(self) -> NullKind:
        """Of the null windows beside the candidate's usual ones."""
        return NullKind.of(self._slots[self._own_role], gated=self._own.gated)

    @property
    def _reference_is_known(self) -> bool:
        return len(self._reference_alone.elapsed_ms) >= ALONE_ROUNDS

    def _round(self) -> bool:
        """A null window for each, and the reference's; False where that can no longer be run."""
        null = self._null_round()
        return self._reference is None or self._shoot_reference(self._reference, null)

    def _null_round(self) -> dict[str, Clock]:
        null = self._null_windows()
        for role, taken in null.items():
            self._null[role].append(taken)
        return null

    def _shoot_reference(self, reference: Contender, null: dict[str, Clock]) -> bool:
        record = self._records[reference.role]
        if reference.range is None or reference.session is None:
            return False
        try:
            # As beside the candidate: from one place alone its time is another.
            relocate(reference, self._slots[reference.role], record)
            window = reference.range.window(self._slots[reference.role], gated=record.gated)
        except (KernelFault, GateClosed):
            return False
        self._reference_alone.add(window, null[reference.role])
        return True

    def _tell(self, code: FlagCode, what: str, beside_ms: Sequence[float], alone_ms: Sequence[float]) -> None:
        # Means, as slowed_by compares: of windows that were slowed now and then the median says nothing.
        beside, alone = statistics.mean(beside_ms), statistics.mean(alone_ms)
        message = (
            f"{what} took {duration(beside)} beside this kernel's process and {duration(alone)} without it: what it "
            "slowed is taken out of the times"
        )
        if message not in (flag.message for flag in self.flags):
            self.flags.append(Flag(code, message, {"concurrent_ms": beside, "isolated_ms": alone}))


def _disturbed_ms(usual_ms: float) -> float:
    """What null windows take at most where nobody disturbs the card."""
    return DISTURBED * usual_ms + DISTURBED_MS


def _elapsed_ms(clocks: Sequence[Clock]) -> list[float]:
    return [taken.elapsed_ms for taken in clocks]
