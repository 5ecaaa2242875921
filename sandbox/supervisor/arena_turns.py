"""Lets several sessions of a device have an arena in turns, for calls too large for all of their arenas at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from domain.fault import KernelFault


class ArenaHolder(Protocol):
    """A session, as far as turns need it."""

    def detach(self, *, keep_cache_size: bool = False) -> None: ...

    def stop(self) -> None: ...

    def release(self) -> None: ...


class ArenaTurns:
    """At most one session has an arena; a session that needs one takes it from the session that had the last turn.

    `free_cache` frees what the referee itself has cached on the device.
    """

    def __init__(self, free_cache: Callable[[], None]) -> None:
        self._free_cache = free_cache
        self._holder: ArenaHolder | None = None

    def take(self, session: ArenaHolder) -> None:
        """Gives this session its turn, after the end of another session's turn."""
        if self._holder is session:
            return
        if self._holder is not None:
            self.end(self._holder)
        self._holder = session
        self._free_cache()

    def end(self, session: ArenaHolder) -> None:
        """Ends the turn of this session, if it has one: its runner unmaps the arena and frees cached memory.

        A runner that fails to do so is killed. Its own next request then reports the fault, and not the session that
        gets its turn now.
        """
        if self._holder is not session:
            return
        self._holder = None
        try:
            session.detach(keep_cache_size=True)
        except KernelFault:
            session.stop()
            session.release()
