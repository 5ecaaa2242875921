"""The windows of one round: a contender's, and the null windows beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from profiling.results.samples import TimeRecord
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, GateClosed, HeldBack, Window
from tasks.correctness.trials import Trials
from tasks.runtime.freeze import at_rest
from tasks.runtime.kernel_run import Contender
from tasks.runtime.null_window_cache import NullKind
from tasks.timing.allocation_shuffle import relocate


class Shooting:
    """Of a job's contenders. `streamed` are those whose calls cannot all be queued behind the gate, by role.

    `windows_s` is what all windows have taken so far: with the null windows, queueing and making ready.
    """

    def __init__(self, rounds: Trials) -> None:
        self.rounds = rounds
        self.contenders = rounds.contenders
        self.bench = rounds.bench
        self.streamed: set[str] = set()
        self.windows_s = 0.0

    def relocate(self, slots: dict[str, Slots], records: dict[str, TimeRecord]) -> None:
        """Has what calls keep between launches lie elsewhere."""
        for contender in self.contenders:
            self.relocate_one(contender, slots, records)

    def relocate_one(self, contender: Contender, slots: dict[str, Slots], records: dict[str, TimeRecord]) -> None:
        """Of that one's calls."""
        with contender.answerable():
            relocate(contender, slots[contender.role], records[contender.role])

    def shoot(
        self,
        contender: Contender,
        slots: dict[str, Slots],
        record: TimeRecord,
        *,
        marked: bool = False,
        held_back: HeldBack | None = None,
        behind: dict[str, Slots] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Window:
        """One window of that contender. Raises GateClosed where it waits for the device in some calls, not in others:
        all of its windows are to be streamed then. `meanwhile` is called while it queues its calls.

        Without the gate, one `behind` another over those, which counts for nothing: code that a host has not run for
        some milliseconds takes it up to 300 µs more to run, which a window of few calls would show as theirs.
        """
        try:
            with self._counted():
                if behind is not None and not record.gated:
                    self.rounds.run_window(contender, behind)
                return self.rounds.run_window(
                    contender, slots, gated=record.gated, marked=marked, held_back=held_back, meanwhile=meanwhile
                )
        except GateClosed:
            self.streamed.add(contender.role)
            raise

    def null_windows(
        self, slots: dict[str, Slots], records: dict[str, TimeRecord], behind: dict[str, Slots] | None = None
    ) -> dict[str, Clock]:
        """A null window for each contender; one for both where they hand in the same."""
        kinds = {role: NullKind.of(layout, gated=records[role].gated) for role, layout in slots.items()}
        taken: dict[NullKind, Clock] = {}
        for role, kind in kinds.items():
            if kind not in taken:
                usual = behind[role] if behind is not None else None
                taken[kind] = self.null_window(slots[role], records[role], behind=usual)
        return {role: taken[kind] for role, kind in kinds.items()}

    def null_window(
        self, layout: Slots, record: TimeRecord, held_back: HeldBack | None = None, behind: Slots | None = None
    ) -> Clock:
        """One, taken as that record's windows are."""
        with self._counted(), at_rest(self.contenders, self.bench.device):
            if behind is not None and not record.gated:
                self.bench.null_window(behind, gated=False)
            return self.bench.null_window(layout, gated=record.gated, held_back=held_back)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.windows_s += time.monotonic() - began

    def announce(self, slots: dict[str, Slots]) -> None:
        """Has the contenders lay out the calls of the next windows at the same time.

        On the host, where that would be in each other's way, each does so when its turn comes.
        """
        for contender in self.contenders if self.bench.device.is_cuda else ():
            with contender.answerable():
                if contender.range is not None:
                    contender.range.announce(slots[contender.role])

    def warm_null(self, slots: dict[str, Slots]) -> None:
        """The null runner takes its memory and loads its code now: neither can be done behind a closed gate."""
        for layout in {layout.handed_in: layout for layout in reversed(slots.values())}.values():
            self.bench.null_window(layout, gated=False)
