"""Memory for request bodies that are read and parsed at the same time, shared by all server processes.

A body is in memory as bytes, as text and as values at once. Each process writes its own sum where all can read it; no
process waits for a lock that a killed one might have held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from threading import Lock

from api.http.limits import BODY_MEMORY, PLACES, SMALL_BODY

_reserved = RawArray("q", PLACES)
"""Bytes of each process, seen by all as it is made before they are forked."""


class NoRoom(Exception):
    """Too many bytes of large bodies are being handled."""


class BodyMemory:
    """One per process; `place` is its own among all."""

    def __init__(self) -> None:
        self._place = 0
        self._lock = Lock()

    def settle(self, place: int) -> None:
        """Take that place, which another process may have left as it died."""
        self._place = place % PLACES
        _reserved[self._place] = 0

    @contextmanager
    def room(self) -> Iterator[Room]:
        """For one body; given back at the end."""
        room = Room(self)
        try:
            yield room
        finally:
            room.give_back()

    def take(self, size: int) -> bool:
        """False where that would be more than all may have; then nothing is taken."""
        with self._lock:
            _reserved[self._place] += size
            # Two processes that do this at once may both be refused: that is safe, and both clients come again.
            if sum(_reserved) > BODY_MEMORY:
                _reserved[self._place] -= size
                return False
            return True

    def free(self, size: int) -> None:
        with self._lock:
            _reserved[self._place] -= size


class Room:
    """The memory reserved for one body; none while it is small."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._size = 0

    def hold(self, size: int) -> None:
        """Have room for a body of so many bytes; raises NoRoom, and keeps what it had."""
        if size <= SMALL_BODY or size <= self._size:
            return
        if not self._memory.take(size - self._size):
            raise NoRoom
        self._size = size

    def give_back(self) -> None:
        self._memory.free(self._size)
        self._size = 0


BODIES = BodyMemory()


def clear(place: int) -> None:
    """Free what a process had that has ended; called where it was forked."""
    _reserved[place % PLACES] = 0
