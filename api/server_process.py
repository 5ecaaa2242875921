"""A server process that lets others have a new connection first while it has more than they."""

from __future__ import annotations

import time
from multiprocessing.sharedctypes import RawArray
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

STEP_S, LONGEST_S = 0.0005, 0.002
"""Longer than another process takes to wake up; for each connection ahead, and at most."""

PLACES, NOBODY = 64, 1 << 30
_held = RawArray("i", [NOBODY] * PLACES)
"""How many connections each has, seen by all as it is made before they are forked; who replaces one has a new place."""


class ServerProcess(ThreadWorker):  # type: ignore[misc] # gunicorn has no type information.
    """Whoever is awake first would take most of the connections that a client makes one after the other.

    They stay with their process, and its threads share one lock: of 64 it had 53 (docs/measurements.md).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._say(self.nr_conns)

    def accept(self, *listener: Any) -> None:
        self._say(self.nr_conns)
        if ahead := self.nr_conns - min(_held):
            time.sleep(min(ahead * STEP_S, LONGEST_S))
        super().accept(*listener)  # Which takes none where another has.
        self._say(self.nr_conns)

    def gone(self) -> None:
        """Nobody is to wait for it any more; called where it was forked."""
        self._say(NOBODY)

    def _say(self, held: int) -> None:
        _held[self.age % PLACES] = held
