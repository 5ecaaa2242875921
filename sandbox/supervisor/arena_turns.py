"""Lets the sessions of a device give up their arenas for each other, for calls too large for all arenas at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from domain.fault import KernelFault


class ArenaHolder(Protocol):
    """A session, as far as turns need it."""

    def detach(self) -> None: ...

    def stop(self) -> None: ...

    def release(self) -> None: ...


class ArenaTurns:
    """Takes arenas from the sessions that used theirs longest ago, until the device has room for the next step.

    `has_room(size)` tells whether an arena of that size can be made, with room for the call that follows.
    """

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        self._has_room = has_room
        self._holders: list[ArenaHolder] = []
        """From the one that used its arena longest ago to the one that uses it now."""

    def take(self, session: ArenaHolder, new_bytes: int) -> None:
        """Makes room for this session, which needs so many bytes beside the arena that it may have."""
        self._holders = [holder for holder in self._holders if holder is not session]
        while self._holders and not self._has_room(new_bytes):
            self.end(self._holders[0])
        self._holders.append(session)

    def end_all(self, but: ArenaHolder | None = None) -> None:
        """Ends the turns of all sessions but that one."""
        for holder in list(self._holders):
            if holder is not but:
                self.end(holder)

    def end(self, session: ArenaHolder) -> None:
        """Has a session's runner unmap its arena and free cached memory.

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
