"""Limits the memory for request bodies that all server processes read and parse at the same time.

A body is in memory as bytes, as text and as values at once. Each process publishes its own sum in shared memory. No
process waits for a lock, because a killed process might hold it.
"""

from __future__ import annotations

from multiprocessing.sharedctypes import RawArray
from threading import Lock

from api.http.limits import BODY_MEMORY, PROCESS_SLOTS, SMALL_BODY

_reserved = RawArray("q", PROCESS_SLOTS)
"""Bytes reserved by each process; shared, because it is allocated before the processes fork."""


def reserved_bytes() -> int:
    """Bytes that the bodies of all processes take now."""
    return sum(_reserved)


class NoRoom(Exception):
    """Too many bytes of large bodies are being processed."""


class BodyMemory:
    """The reservations of one process, in its slot of the shared array."""

    def __init__(self) -> None:
        self._slot = 0
        self._lock = Lock()

    def take_slot(self, slot: int) -> None:
        """Takes a slot, which another process may have left when it died."""
        self._slot = slot
        _reserved[slot] = 0

    def take(self, size: int) -> bool:
        """Reserves memory; returns False, and reserves nothing, where that would exceed the common limit."""
        with self._lock:
            _reserved[self._slot] += size
            # Two simultaneous processes may both be refused, which is safe because both clients retry.
            if reserved_bytes() > BODY_MEMORY:
                _reserved[self._slot] -= size
                return False
            return True

    def free(self, size: int) -> None:
        with self._lock:
            _reserved[self._slot] -= size


class BodyReservation:
    """The memory reserved for one body; none while it is small."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._size = 0

    def reserve(self, size: int) -> None:
        """Reserves memory for a body of that size. Raises NoRoom, and keeps the earlier reservation."""
        if size <= SMALL_BODY or size <= self._size:
            return
        if not self._memory.take(size - self._size):
            raise NoRoom
        self._size = size

    def give_back(self) -> None:
        self._memory.free(self._size)
        self._size = 0


BODIES = BodyMemory()


def clear(slot: int) -> None:
    """Frees the reservation of a process that has ended; called in the parent."""
    _reserved[slot] = 0
