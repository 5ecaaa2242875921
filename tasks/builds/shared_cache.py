"""Finished builds in Redis by what went into them, and marks of who is making which: what a node built, others take.

Nothing here is a job's: whatever is lost or cannot be read is built anew. docs/adr/0031 has the reasons.

Keys: `builds:archives` has each archive by its build's key, packed; `builds:shipped` and `builds:expire` when each came
and when it is forgotten (sorted sets, epoch seconds of the server's clock), `builds:bytes` what all of them take.
`builds:mark:<key>` says who makes that build, for MARK_S at a time, or that it came to nothing that could be shipped;
`builds:awaited:<key>` that somebody waits for it.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from redis import Redis
from redis.exceptions import RedisError

from domain.fault import JobCancelled, KernelFault
from tasks.builds import archive as build_archive
from tasks.builds import shared_cache_lua
from tasks.builds.archive import UNREADABLE
from tasks.builds.local_cache import FAULT_S, BuildCache
from tasks.jobs.job_view import text
from tasks.node.periodic_thread import PeriodicThread

TTL_S = 86_400
MAX_PACKED_BYTES = 32 << 20
"""Of one build. Redis does nothing else while it takes or gives one: 32 MiB are a third of a second at 1 Gbit/s."""

MAX_TAR_BYTES = build_archive.MAX_BYTES + 2 * build_archive.MAX_NOTE_BYTES + 4096 * build_archive.MAX_FILES
MARK_S = 3
RENEW_S = 0.5
IN_VAIN_S = 600
PAUSE_S = 10.0
POLL_S = 0.1
LEVEL = 1
CHUNK = 1 << 20
PIECE = 1 << 16

NOTHING = "nothing"
"""In place of a maker's name: whoever was the last to make it had nothing to ship."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Turn:
    """What asking for a build came to: the packed archive, or None; whether who asked is the one to build it now."""

    packed: bytes | None
    mine: bool


class ShippedBuilds:
    """The builds that nodes ship each other, up to `limit` bytes of Redis' memory; the oldest go first.

    Where Redis fails, that is in the log, it is not asked again for PAUSE_S, and whoever asks builds for himself.
    """

    def __init__(self, redis: Redis, limit: int, name: str) -> None:
        """`name` is whose marks are set here, for others to read."""
        self._redis = redis
        self._limit = limit
        self._name = name
        self._paused_until = 0.0
        self.count = 0
        """How many builds were shipped from here."""
        self._missing = redis.register_script(shared_cache_lua.MISSING)
        self._turn = redis.register_script(shared_cache_lua.TURN)
        self._renew = redis.register_script(shared_cache_lua.RENEW)
        self._release = redis.register_script(shared_cache_lua.RELEASE)
        self._ship = redis.register_script(shared_cache_lua.SHIP)
        self._drop = redis.register_script(shared_cache_lua.DROP)

    @contextmanager
    def turn(self, key: str, cancelled: Callable[[], bool], until: float) -> Iterator[Turn]:
        """What has been shipped, or the turn to build it: inside others know who does, and wait for it.

        While somebody else makes it, that is waited for `until` (time.monotonic). Raises JobCancelled.
        """
        token = f"{self._name} {uuid4().hex}"
        turn = self._wait(key, token, cancelled, until)
        if not turn.mine:
            yield turn
            return
        renew = partial(self._renew, args=[key, token, MARK_S])
        renewing = PeriodicThread("build's mark", lambda: self._try("others may build it too", renew), RENEW_S)
        renewing.start()
        in_vain = ""
        try:
            yield turn
            in_vain = NOTHING  # Unless it was shipped.
        except KernelFault:
            in_vain = NOTHING
            raise
        finally:
            renewing.stop()
            self._try("its mark stays", lambda: self._release(args=[key, token, in_vain, IN_VAIN_S]))

    def _wait(self, key: str, token: str, cancelled: Callable[[], bool], until: float) -> Turn:
        told = False
        while True:
            said = self._try("built here", partial(self._turn, args=[key, token, MARK_S]))
            if said is None:
                return Turn(None, False)
            packed, maker = said[0] or None, text(said[1])
            if packed is not None or maker == token:
                return Turn(packed, maker == token)
            if maker == NOTHING or time.monotonic() >= until:
                return Turn(None, False)
            if cancelled():
                raise JobCancelled("cancelled while another node built the same source")
            if not told:
                told = True
                log.info("build %s: %s makes it", key, maker.partition(" ")[0])
            time.sleep(POLL_S)

    @property
    def paused(self) -> bool:
        """Whether Redis failed a moment ago: until it is asked again nobody gets a turn."""
        return time.monotonic() < self._paused_until

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Those that are neither here nor being made nor in vain. Raises RedisError."""
        if not keys:
            return []
        return [text(key) for key in self._missing(args=keys)]

    def waited_for(self, key: str) -> bool:
        """Whether somebody waits for who makes that build, or did in the last seconds. Raises RedisError."""
        return bool(self._redis.exists(f"builds:awaited:{key}"))

    def receive(self, key: str, packed: bytes, cache: BuildCache) -> bool:
        """Puts what was taken from here among a node's kept builds; False where it cannot be.

        What is no build is dropped here. A node whose disk is full has nothing to say about that.
        """
        try:
            cache.receive(key, partial(_unpack, packed))
        except OSError as error:
            log.warning("the shipped build %s cannot be kept here, others may take it: %s", key, error)
            return False
        except UNREADABLE as error:
            log.warning("the shipped build %s is refused (%s): it is built here", key, error)
            self._try("it stays", lambda: self._drop(args=[key]))
            return False
        return True

    def ship(self, key: str, archive: Path, *, fault: bool) -> bool:
        """Hands a kept build on to other nodes; False where that cannot be. A fault is remembered for a while only."""
        try:
            packed = _packed(archive)
        except OSError as error:
            log.warning("the build %s is not shipped: %s", key, error)
            return False
        if packed is None or len(packed) > self._limit:
            log.info("build %s: too large to be shipped", key)
            return False
        ttl_s = FAULT_S if fault else TTL_S
        told = self._try("it is not shipped", lambda: self._ship(args=[key, packed, ttl_s, self._limit, TTL_S]))
        self.count += told is not None
        return told is not None

    def _try(self, so: str, ask: Callable[[], Any]) -> Any | None:
        """What Redis says; None where it cannot be asked, with `so` in the log."""
        if self.paused:
            return None
        try:
            return ask()
        except RedisError as error:
            self._paused_until = time.monotonic() + PAUSE_S
            log.warning("shipped builds cannot be reached: %s (%s: %s)", so, type(error).__name__, error)
            return None


def _packed(archive: Path) -> bytes | None:
    """None where it is too large."""
    packer, packed = zlib.compressobj(LEVEL), bytearray()
    with archive.open("rb") as file:
        while chunk := file.read(CHUNK):
            packed += packer.compress(chunk)
            if len(packed) > MAX_PACKED_BYTES:
                return None
    packed += packer.flush()
    return bytes(packed) if len(packed) <= MAX_PACKED_BYTES else None


def _unpack(packed: bytes, file: BinaryIO) -> None:
    """Into that file, piece by piece; ValueError for what is not packed, or would be too large."""
    if len(packed) > MAX_PACKED_BYTES:
        raise ValueError("it is larger than what is shipped")
    unpacker, size = zlib.decompressobj(), 0
    try:
        for start in range(0, len(packed), PIECE):
            left, full = packed[start : start + PIECE], True
            while left or full:
                chunk = unpacker.decompress(left, CHUNK)
                left, full = unpacker.unconsumed_tail, len(chunk) == CHUNK
                size += len(chunk)
                if size > MAX_TAR_BYTES:
                    raise ValueError("it is larger than any build that is kept")
                file.write(chunk)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise ValueError("its end is missing")
