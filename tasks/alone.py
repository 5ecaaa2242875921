"""When the candidate's process is gone: null windows and the reference's once more, without it beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.fault import KernelFault
from profiling.beside import slowed_by
from profiling.flags import duration
from profiling.longer_windows import OtherWindows
from profiling.record import TimeRecord
from profiling.slots import Slots
from profiling.window import Clock, GateClosed
from tasks.contender import Contender
from tasks.places import relocate

ALONE_ROUNDS = 3


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
    """What the windows of a job's records take without the candidate. `flags` says what it slowed."""

    def __init__(
        self,
        contenders: list[Contender],
        slots: dict[str, Slots],
        records: dict[str, TimeRecord],
        null_windows: Callable[[], dict[str, Clock]],
        others: Sequence[OtherNulls] = (),
    ) -> None:
        self._reference = contenders[0] if len(contenders) > 1 else None
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

    def shoot(self) -> None:
        """The windows. A reference that can no longer be run is told, and nothing is known about it."""
        for _ in range(ALONE_ROUNDS):
            null = self._null_windows()
            for role, taken in null.items():
                self._null[role].append(taken)
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
            alone_ms, beside_ms = [taken.elapsed_ms for taken in self._null[role]], record.null_ms
            if slowed_by(beside_ms, alone_ms, record.kind) is not None:
                self._tell("null windows", beside_ms, alone_ms)
                record.correct_null(alone_ms)
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
        if self._reference is None or len(self._reference_alone.elapsed_ms) < ALONE_ROUNDS:
            return
        record = self._records[self._reference.role]
        beside_ms, alone_ms = list(record.net_ms), list(self._reference_alone.net_ms)
        slowed = slowed_by(beside_ms, alone_ms, record.kind)
        if slowed is not None:
            self._tell("windows of the reference", beside_ms, alone_ms)
            record.slowed = slowed

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
