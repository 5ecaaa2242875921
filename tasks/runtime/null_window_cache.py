"""What null windows took with no submission on the device, for as long as that is worth knowing (docs/adr/0039)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.value import TensorRef
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, HeldBack

KNOWN_S = 60.0
"""A card's temperature, and its clocks with it, takes tens of seconds to become another; who has jobs of one kind has
several of them a minute."""
MOST_KINDS, MOST_USUAL = 64, 1024
"""A job has three kinds at most; layouts of more than a few jobs of a minute are seldom seen again. What is usual is a
number, worth knowing for longer."""


@dataclass(frozen=True)
class NullKind:
    """All that the clock of a null window depends on: windows of one kind take the same where nothing is computed."""

    handed_in: tuple[int, bool, int, tuple[TensorRef, ...]]
    gated: bool
    held_back: HeldBack | None = None

    @classmethod
    def of(cls, layout: Slots, *, gated: bool, held_back: HeldBack | None = None) -> NullKind:
        """That of null windows over that layout."""
        return cls(layout.handed_in, gated, held_back)


class KnownNulls:
    """Of one null runner's process, by kind. Whoever keeps clocks here answers for that no submission lived meanwhile.

    Gated ones alone: others are shot behind usual ones, or on a host, whose clock others have a part in. `now` is a
    monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[NullKind, tuple[float, list[Clock]]] = {}
        self._least_ms: dict[NullKind, float] = {}

    def keep(self, kind: NullKind, clocks: Sequence[Clock]) -> None:
        """Those just shot, in place of what was known of that kind before. The oldest kind makes room."""
        if not kind.gated:
            return
        self._kept.pop(kind, None)
        self._kept[kind] = self._now(), list(clocks)
        if len(self._kept) > MOST_KINDS:
            del self._kept[next(iter(self._kept))]

    def usual_ms(self, kind: NullKind) -> float | None:
        """The least that such windows took in any job, by their median: who disturbs them only makes them longer."""
        return self._least_ms.get(kind)

    def note(self, kind: NullKind, clocks: Sequence[Clock]) -> None:
        """Those count for what is usual, whoever lived meanwhile."""
        if not kind.gated or not clocks:
            return
        taken_ms = statistics.median(clock.elapsed_ms for clock in clocks)
        self._least_ms[kind] = min(taken_ms, self._least_ms.pop(kind, taken_ms))
        if len(self._least_ms) > MOST_USUAL:
            del self._least_ms[next(iter(self._least_ms))]

    def of(self, kind: NullKind) -> list[Clock]:
        """The last that were kept of that kind; none where they are older than KNOWN_S."""
        kept_at, clocks = self._kept.get(kind, (0.0, []))
        return list(clocks) if self._now() - kept_at <= KNOWN_S else []

    def forget(self) -> None:
        """All of them: another process's windows may take another time."""
        self._kept.clear()
        self._least_ms.clear()
