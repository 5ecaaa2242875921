"""A server process that lets others have a new connection first while it has more than they."""

from __future__ import annotations

import time
from multiprocessing.sharedctypes import RawArray
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from api.capacity import PROCESSES

STEP_S, LONGEST_S = 0.0005, 0.002
"""Longer than another process takes to wake up; for each connection ahead, and at most."""

_held = RawArray("i", PROCESSES)
"""How many connections each has, made before they are forked; after a restart of one, approximately."""


class ServerProcess(ThreadWorker):  # type: ignore[misc] # gunicorn has no type information.
    """Whoever is awake first would take most of the connections that a client makes one after the other.

    They stay with their process, and its threads share one lock: of 64 it had 53 (docs/measurements.md).
    """

    def accept(self, *listener: Any) -> None:
        place = self.age % PROCESSES
        _held[place] = self.nr_conns
        if ahead := self.nr_conns - min(_held):
            time.sleep(min(ahead * STEP_S, LONGEST_S))
        super().accept(*listener)  # Which takes none where another has.
        _held[place] = self.nr_conns
