"""Takes arenas away from the sessions of a device that used theirs longest ago, for calls too large for all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from domain.fault import KernelFault


class ArenaHolder(Protocol):
    """A session, as far as eviction needs it."""

    def detach(self) -> None: ...

    def stop(self) -> None: ...

    def release(self) -> None: ...


class ArenaEviction:
    """Evicts the least recently used arenas until the device has room for the next step.

    `has_room(size)` tells whether an arena of that size can be made, with room for what the referee needs then.
    """

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        self.shortages = 0
        """How often a session, or the referee, lacked memory for its next call: an arena had to go, or none could."""
        self._has_room = has_room
        self._holders: list[ArenaHolder] = []
        """From the least to the most recently used arena."""

    def make_room(self, session: ArenaHolder, new_bytes: int) -> None:
        """Makes room for this session, which needs so many bytes beside the arena that it may have."""
        self._holders = [holder for holder in self._holders if holder is not session]
        while not self._has_room(new_bytes) and self.evict_next(but=session):
            pass
        self._holders.append(session)

    def evict_next(self, but: ArenaHolder | None = None) -> bool:
        """Evicts the arena that was used longest ago, but not that session's; False if there is no other."""
        for holder in self._holders:
            if holder is not but:
                self.evict(holder)
                self.shortages += 1
                return True
        return False

    def evict_all(self, but: ArenaHolder | None = None) -> None:
        """Evicts the arenas of all sessions but that one."""
        for holder in list(self._holders):
            if holder is not but:
                self.evict(holder)

    def evict(self, session: ArenaHolder) -> None:
        """Has a session's runner unmap its arena and free cached memory; does nothing if it has no arena.

        A runner that fails to do so is killed. Its own next request then reports the fault, and not the session that
        gets the memory.
        """
        if session not in self._holders:
            return
        self._holders.remove(session)
        try:
            session.detach()
        except KernelFault:
            session.stop()
            session.release()
