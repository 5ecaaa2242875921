"""The build cache of all nodes, in Redis: finished builds by a digest of their inputs, and who is making which build.

No job depends on it: a build that is lost or unreadable is made again. docs/adr/0031 has the reasons.

Keys: `builds:archives` has each compressed archive by build key. `builds:shipped` has the times at which they were
stored, `builds:expire` their expiry (sorted sets, epoch seconds of Redis' clock), `builds:bytes` their total size.
`builds:mark:<key>` names the maker of that build, for MARK_S at a time, or says that there was nothing to share.
`builds:awaited:<key>` exists while another node waits for the build.
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
from tasks.builds import shared_cache_scripts
from tasks.builds.archive import UNREADABLE
from tasks.builds.local_cache import FAULT_S, BuildCache
from tasks.node.periodic_thread import PeriodicThread
from tasks.node.redis_client import text

TTL_S = 86_400
MAX_PACKED_BYTES = 32 << 20
"""Maximum bytes of one build. Redis serves nothing else meanwhile: 32 MiB take a third of a second at 1 Gbit/s."""

MAX_TAR_BYTES = build_archive.MAX_BYTES + 2 * build_archive.MAX_NOTE_BYTES + 4096 * build_archive.MAX_FILES
MARK_S = 3
RENEW_S = 0.5
NOTHING_TO_SHARE_S = 600
PAUSE_S = 10.0
POLL_S = 0.1
LEVEL = 1
CHUNK = 1 << 20
PIECE = 1 << 16

NOTHING = "nothing"
"""Stored instead of a maker's name: the last maker had nothing to share."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reservation:
    """The result of asking for a build: the compressed archive or None, and whether the caller must build it now."""

    packed: bytes | None
    mine: bool


class SharedBuilds:
    """The builds that nodes share, up to `limit` bytes of Redis' memory; the oldest are evicted first.

    After an error, Redis is not asked for PAUSE_S, and every node builds for itself; the log says so.
    """

    def __init__(self, redis: Redis, limit: int, name: str) -> None:
        """`name` is shown to other nodes as the maker of a build."""
        self._redis = redis
        self._limit = limit
        self._name = name
        self._paused_until = 0.0
        self.count = 0
        """Number of builds that this process has shared."""
        self._missing = redis.register_script(shared_cache_scripts.MISSING)
        self._reserve = redis.register_script(shared_cache_scripts.RESERVE)
        self._renew = redis.register_script(shared_cache_scripts.RENEW)
        self._release = redis.register_script(shared_cache_scripts.RELEASE)
        self._ship = redis.register_script(shared_cache_scripts.SHIP)
        self._drop = redis.register_script(shared_cache_scripts.DROP)

    @contextmanager
    def reserve(self, key: str, cancelled: Callable[[], bool], until: float) -> Iterator[Reservation]:
        """Return the shared build, or reserve it: other nodes then wait for this one to build it.

        While another node makes it, wait for it `until` (time.monotonic). Raises JobCancelled.
        """
        token = f"{self._name} {uuid4().hex}"
        reservation = self._wait(key, token, cancelled, until)
        if not reservation.mine:
            yield reservation
            return
        renew = partial(self._renew, args=[key, token, MARK_S])
        renewing = PeriodicThread("build's mark", lambda: self._try("others may build it too", renew), RENEW_S)
        renewing.start()
        replacement = ""
        try:
            yield reservation
            replacement = NOTHING  # `release` ignores it if the build was shared.
        except KernelFault:
            replacement = NOTHING
            raise
        finally:
            renewing.stop()
            self._try("its mark remains", lambda: self._release(args=[key, token, replacement, NOTHING_TO_SHARE_S]))

    def _wait(self, key: str, token: str, cancelled: Callable[[], bool], until: float) -> Reservation:
        logged = False
        while True:
            reply = self._try("builds are made here", partial(self._reserve, args=[key, token, MARK_S]))
            if reply is None:
                return Reservation(None, False)
            packed, maker = reply[0] or None, text(reply[1])
            if packed is not None or maker == token:
                return Reservation(packed, maker == token)
            if maker == NOTHING or time.monotonic() >= until:
                return Reservation(None, False)
            if cancelled():
                raise JobCancelled("cancelled while another node built the same source")
            if not logged:
                logged = True
                log.info("build %s: %s makes it", key, maker.partition(" ")[0])
            time.sleep(POLL_S)

    @property
    def paused(self) -> bool:
        """Whether Redis failed recently: until the next request no build can be reserved."""
        return time.monotonic() < self._paused_until

    def missing(self, keys: Sequence[str]) -> list[str]:
        """The builds that are neither shared nor reserved, and did not fail to be shared. Raises RedisError."""
        if not keys:
            return []
        return [text(key) for key in self._missing(args=keys)]

    def is_awaited(self, key: str) -> bool:
        """Whether another node waits for that build, or did in the last seconds. Raises RedisError."""
        return bool(self._redis.exists(f"builds:awaited:{key}"))

    def receive(self, key: str, packed: bytes, cache: BuildCache) -> bool:
        """Store a shared build in a node's cache; False if that fails.

        An invalid archive is removed from Redis. An error of the node's disk says nothing about the archive.
        """
        try:
            cache.receive(key, partial(_unpack, packed))
        except OSError as error:
            log.warning("the shared build %s cannot be stored here; it stays available to others: %s", key, error)
            return False
        except UNREADABLE as error:
            log.warning("the shared build %s is invalid (%s); building it here", key, error)
            self._try("it stays", lambda: self._drop(args=[key]))
            return False
        return True

    def ship(self, key: str, archive: Path, *, fault: bool) -> bool:
        """Share a cached build with other nodes; False if that fails. A fault is stored for FAULT_S only."""
        try:
            packed = _packed(archive)
        except OSError as error:
            log.warning("the build %s is not shared: %s", key, error)
            return False
        if packed is None or len(packed) > self._limit:
            log.info("build %s: too large to be shared", key)
            return False
        ttl_s = FAULT_S if fault else TTL_S
        reply = self._try("it is not shipped", lambda: self._ship(args=[key, packed, ttl_s, self._limit, TTL_S]))
        self.count += reply is not None
        return reply is not None

    def _try(self, consequence: str, ask: Callable[[], Any]) -> Any | None:
        """The reply of Redis; None if it is unreachable, with `consequence` in the log."""
        if self.paused:
            return None
        try:
            return ask()
        except RedisError as error:
            self._paused_until = time.monotonic() + PAUSE_S
            log.warning("shared builds cannot be reached: %s (%s: %s)", consequence, type(error).__name__, error)
            return None


def _packed(archive: Path) -> bytes | None:
    """The compressed archive; None if it is too large."""
    packer, packed = zlib.compressobj(LEVEL), bytearray()
    with archive.open("rb") as file:
        while chunk := file.read(CHUNK):
            packed += packer.compress(chunk)
            if len(packed) > MAX_PACKED_BYTES:
                return None
    packed += packer.flush()
    return bytes(packed) if len(packed) <= MAX_PACKED_BYTES else None


def _unpack(packed: bytes, file: BinaryIO) -> None:
    """Decompress into the file, piece by piece; ValueError for invalid or too large data."""
    if len(packed) > MAX_PACKED_BYTES:
        raise ValueError("it is larger than any shared build")
    unpacker, size = zlib.decompressobj(), 0
    try:
        for start in range(0, len(packed), PIECE):
            left, full = packed[start : start + PIECE], True
            while left or full:
                chunk = unpacker.decompress(left, CHUNK)
                left, full = unpacker.unconsumed_tail, len(chunk) == CHUNK
                size += len(chunk)
                if size > MAX_TAR_BYTES:
                    raise ValueError("it is larger than any cached build")
                file.write(chunk)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise ValueError("its end is missing")
