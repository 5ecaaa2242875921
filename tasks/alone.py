"""When the candidate's process is gone: null windows and the reference's once more, without it beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.fault import KernelFault
from profiling.beside import slowed_by, slowed_now_and_then, too_noisy
from profiling.flags import duration
from profiling.longer_windows import OtherWindows
from profiling.record import TimeRecord
from profiling.slots import Slots
from profiling.window import Clock, GateClosed
from tasks.contender import Contender
from tasks.places import relocate

ALONE_ROUNDS = 3
MOST_ROUNDS = 12
"""Where the first ones differ by too much to tell anything."""


@dataclass(frozen=True)
class OtherNulls:
    """Null windows of another kind that were shot beside the candidate, and how one more is shot.

    Beside an honest one they take so much longer at most.
    """

    record: TimeRecord
    windows: OtherWindows
    shoot: Callable[[], Clock]
    most_apart_ms: float


class Alone:
    """What the windows of a job's records take without the candidate. `flags` says what it slowed.

    `corrected` is whether a record is another by that, which it may be with nothing to tell.
    """

    def __init__(
        self,
        contenders: list[Contender],
        slots: dict[str, Slots],
        records: dict[str, TimeRecord],
        null_windows: Callable[[], dict[str, Clock]],
        others: Sequence[OtherNulls] = (),
    ) -> None:
        self._reference = contenders[0] if len(contenders) > 1 else None
        self._own = records[contenders[-1].role]
        self._slots = slots
        self._records = records
        self._null_windows = null_windows
        self._null: dict[str, list[Clock]] = {role: [] for role in records}
        self._others = [other for other in others if other.windows.elapsed_ms]
        self._others_ms: list[list[float]] = [[] for _ in self._others]
        like = records[contenders[0].role]
        self._reference_alone = TimeRecord(
            like.calls, like.is_cuda, gated=like.gated, launch_shift_ms=like.launch_shift_ms, charged=False
        )
        self.flags: list[str] = []
        self.corrected = False

    def shoot(self) -> None:
        """The windows. A reference that can no longer be run is told, and nothing is known about it."""
        for done in range(MOST_ROUNDS):
            if done >= ALONE_ROUNDS and not self._unsure:
                return
            null = self._null_windows()
            for role, taken in null.items():
                self._null[role].append(taken)
            if done < ALONE_ROUNDS:
                for other, taken_ms in zip(self._others, self._others_ms, strict=True):
                    taken_ms.append(other.shoot().elapsed_ms)
            if self._reference is not None and not self._shoot_reference(self._reference, null):
                self.flags.append(
                    "the reference could not be run once more without this kernel, which may have slowed it"
                )
                return

    def correct(self) -> None:
        """Takes out of the records what only the candidate's presence put there."""
        for role, record in self._records.items():
            alone_ms, beside_ms = self._alone_ms(role), record.null_ms
            if slowed_by(beside_ms, alone_ms, record.kind, self._own.elapsed_ms) is not None:
                self._tell("null windows", beside_ms, alone_ms)
                record.correct_null(alone_ms)
            else:
                self.corrected |= record.limit_null(alone_ms)
            if record.correct_ready([taken.ready_ms for taken in self._null[role]]):
                self.flags.append(
                    "null windows were made ready later beside this kernel's process than without it, in rounds in "
                    "which its own were late too: what that hid is added to its time"
                )
        for other, alone_ms in zip(self._others, self._others_ms, strict=True):
            believed = other.record.correction
            other.windows.correct_null(alone_ms, other.most_apart_ms)
            if other.record.correction > believed:
                self.flags.append(
                    "null windows by which its time was checked took longer beside this kernel's process than without "
                    "it: what that hid is added to its time"
                )
        self._correct_reference()
        self.corrected |= bool(self.flags)

    def _correct_reference(self) -> None:
        if self._reference is None or len(self._reference_alone.elapsed_ms) < ALONE_ROUNDS:
            return
        record = self._records[self._reference.role]
        beside_ms, alone_ms = list(record.net_ms), list(self._reference_alone.net_ms)
        slowed = slowed_by(beside_ms, alone_ms, record.kind, list(self._own.net_ms))
        if slowed is not None:
            self._tell("windows of the reference", beside_ms, alone_ms)
            record.slowed = slowed

    @property
    def _unsure(self) -> bool:
        """Whether more windows are to tell: the first ones may differ by chance, and so may those beside the other."""
        for role, record in self._records.items():
            if too_noisy(self._alone_ms(role), record.kind):
                return True
            if slowed_now_and_then(record.null_ms, self._alone_ms(role), record.kind, self._own.elapsed_ms):
                return True
        if self._reference is None:
            return False
        beside = self._records[self._reference.role]
        alone_ms = list(self._reference_alone.net_ms)
        return slowed_now_and_then(list(beside.net_ms), alone_ms, beside.kind, list(self._own.net_ms))

    def _alone_ms(self, role: str) -> list[float]:
        return [taken.elapsed_ms for taken in self._null[role]]

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

    def _tell(self, what: str, beside_ms: list[float], alone_ms: list[float]) -> None:
        told = (
            f"{what} took {duration(statistics.median(beside_ms))} beside this kernel's process and "
            f"{duration(statistics.median(alone_ms))} without it: what it slowed is taken out of the times"
        )
        if told not in self.flags:
            self.flags.append(told)
