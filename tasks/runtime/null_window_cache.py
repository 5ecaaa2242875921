"""Caches the times of null windows that ran while no submission was on the device (docs/adr/0019)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.value import TensorRef
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback

MAX_AGE_S = 60.0
"""Maximum age of a cached time, in s. A card's temperature and clocks need tens of seconds to change; a client with
jobs of one kind sends several a minute."""
MOST_KINDS, MOST_USUAL = 64, 1024
"""Maximum number of kinds whose clocks are cached, and of kinds whose usual time is. A job has three kinds at most, and
layouts seldom come again after a few jobs. A usual time is one number and is useful for longer."""


@dataclass(frozen=True)
class NullKind:
    """Everything that the time of a null window depends on: null windows of one kind take the same time."""

    handed_in: tuple[int, bool, int, tuple[TensorRef, ...]]
    gated: bool
    deferred_readback: DeferredReadback | None = None

    @classmethod
    def of(cls, layout: Slots, *, gated: bool, deferred_readback: DeferredReadback | None = None) -> NullKind:
        """The kind of the null windows over that layout."""
        return cls(layout.handed_in, gated, deferred_readback)


class NullWindowCache:
    """Times of one null runner's windows, by kind. The caller of `store` makes sure that no submission was alive.

    Only gated windows are cached: streamed ones follow a full window, and on a host other programs change the clock.
    `now` is a monotonic clock, in s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clocks: dict[NullKind, tuple[float, list[Clock]]] = {}
        self._least_ms: dict[NullKind, float] = {}

    def store(self, kind: NullKind, clocks: Sequence[Clock]) -> None:
        """Replaces the times of that kind. The kind that was stored first is evicted where there are too many."""
        if not kind.gated:
            return
        self._clocks.pop(kind, None)
        self._clocks[kind] = self._now(), list(clocks)
        if len(self._clocks) > MOST_KINDS:
            del self._clocks[next(iter(self._clocks))]

    def usual_ms(self, kind: NullKind) -> float | None:
        """The least median time of such windows in any job, in ms: a disturbance only makes them longer."""
        return self._least_ms.get(kind)

    def note_usual(self, kind: NullKind, clocks: Sequence[Clock]) -> None:
        """Lowers the usual time of that kind to the median of `clocks`, also where a submission was alive."""
        if not kind.gated or not clocks:
            return
        median_ms = statistics.median(clock.elapsed_ms for clock in clocks)
        self._least_ms[kind] = min(median_ms, self._least_ms.pop(kind, median_ms))
        if len(self._least_ms) > MOST_USUAL:
            del self._least_ms[next(iter(self._least_ms))]

    def get(self, kind: NullKind) -> list[Clock]:
        """The times stored for that kind; empty if they are older than MAX_AGE_S."""
        stored_at, clocks = self._clocks.get(kind, (0.0, []))
        return list(clocks) if self._now() - stored_at <= MAX_AGE_S else []

    def clear(self) -> None:
        """Drops everything, because the windows of another null runner may take another time."""
        self._clocks.clear()
        self._least_ms.clear()
