"""The build cache of all nodes, in Redis: finished builds by a digest of their inputs, and who is making which build.

No job depends on it: a build that is lost or unreadable is made again. docs/adr/0027 has the reasons.

Keys: `builds:archives` has each compressed archive by build key, `builds:stored` the times at which they were stored (a
sorted set, epoch seconds of Redis' clock), `builds:bytes` their total size. `builds:lock:<key>` is held by the maker of
that build. `builds:targets` has what workers have asked builds for, with the time of the last request.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from redis import Redis
from redis.exceptions import LockError, RedisError
from redis.lock import Lock

from domain.fault import JobCancelled
from tasks.builds import archive as build_archive
from tasks.builds.archive import UNREADABLE
from tasks.builds.local_cache import BuildCache
from tasks.jobs.job_scripts import SHARED
from tasks.node.lua_script import LuaScript
from tasks.node.periodic_thread import PeriodicThread
from tasks.node.redis_client import text

TTL_S = 86_400
"""Seconds after the last build was stored, or the last target announced, until everything expires."""

MAX_PACKED_BYTES = 32 << 20
"""Maximum bytes of one build. Redis serves nothing else meanwhile: 32 MiB take a third of a second at 1 Gbit/s."""

MAX_TAR_BYTES = build_archive.MAX_BYTES + 2 * build_archive.MAX_NOTE_BYTES + 4096 * build_archive.MAX_FILES
LOCK_S = 3.0
"""Seconds after which the lock of a dead maker expires."""

RENEW_S = 0.5
PAUSE_S = 10.0
POLL_S = 0.1
LEVEL = 1
CHUNK = 1 << 20
PIECE = 1 << 16

_STORE = Path(__file__).with_name("store_build.lua")
_TARGETS = "builds:targets"

log = logging.getLogger(__name__)

Reply = TypeVar("Reply")


@dataclass(frozen=True)
class BuildTarget:
    """The target of a worker's builds: its GPU model as requests name it, its architecture, and its compilers."""

    gpu_model: str
    arch: str
    toolchain: str


@dataclass(frozen=True)
class Reservation:
    """The result of asking for a build: the compressed archive or None, and whether the caller must build it now."""

    packed: bytes | None
    mine: bool


class SharedBuilds:
    """The builds that nodes share, up to `limit` bytes of Redis' memory; the oldest are evicted first.

    After an error, Redis is not asked for PAUSE_S, and every node builds for itself; the log says so.
    """

    def __init__(self, redis: Redis, limit: int) -> None:
        self._redis = redis
        self._limit = limit
        self._paused_until = 0.0
        self._store_build = LuaScript(redis, SHARED / "argument.lua", _STORE)

    @contextmanager
    def reserve(self, key: str, cancelled: Callable[[], bool], until: float) -> Iterator[Reservation]:
        """Return the shared build, or reserve it: other nodes then wait for this one to build it.

        While another node makes it, wait for it `until` (time.monotonic). Raises JobCancelled.
        """
        lock = Lock(self._redis, f"builds:lock:{key}", timeout=LOCK_S, blocking=False, thread_local=False)
        reservation = self._wait(key, lock, cancelled, until)
        if not reservation.mine:
            yield reservation
            return
        renewing = PeriodicThread(
            "lock of a build", lambda: self._try("others may build it too", partial(_renew, lock)), RENEW_S
        )
        renewing.start()
        try:
            yield reservation
        finally:
            renewing.stop()
            self._try("its lock expires by itself", partial(_release, lock))

    def _wait(self, key: str, lock: Lock, cancelled: Callable[[], bool], until: float) -> Reservation:
        logged = False
        while True:
            reservation = self._try("builds are made here", lambda: self._ask(key, lock))
            if reservation is None:
                return Reservation(None, False)
            if reservation.mine or reservation.packed is not None or time.monotonic() >= until:
                return reservation
            if cancelled():
                raise JobCancelled("cancelled while another node built the same source")
            if not logged:
                logged = True
                log.info("build %s: another node makes it", key)
            time.sleep(POLL_S)

    def _ask(self, key: str, lock: Lock) -> Reservation:
        packed = self._archive(key)
        if packed is not None or not lock.acquire():
            return Reservation(packed, False)
        packed = self._archive(key)  # The last maker may have stored it just before it released the lock.
        if packed is not None:
            _release(lock)
        return Reservation(packed, packed is None)

    def _archive(self, key: str) -> bytes | None:
        return cast("bytes | None", self._redis.hget("builds:archives", key))  # The client does not decode replies.

    def contains(self, key: str) -> bool:
        """Whether that build is shared. Raises RedisError."""
        return bool(self._redis.hexists("builds:archives", key))

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
            self._try("it stays", partial(self._store, key, b""))
            return False
        return True

    def share(self, key: str, archive: Path) -> bool:
        """Share a cached build with other nodes; False if that fails."""
        try:
            packed = _packed(archive)
        except OSError as error:
            log.warning("the build %s is not shared: %s", key, error)
            return False
        if packed is None or len(packed) > self._limit:
            log.info("build %s: too large to be shared", key)
            return False
        return self._try("a build is not shared", partial(self._store, key, packed)) is not None

    def _store(self, key: str, packed: bytes) -> int:
        return int(self._store_build({"key": key, "limit": self._limit, "ttl": TTL_S}, packed))

    def announce(self, target: BuildTarget) -> None:
        """Tell build-only workers that builds for this target are needed."""
        member = json.dumps([target.gpu_model, target.arch, target.toolchain])

        def announce() -> None:
            with self._redis.pipeline() as pipe:
                pipe.zadd(_TARGETS, {member: time.time()})
                pipe.expire(_TARGETS, TTL_S)
                pipe.execute()

        self._try("build-only workers do not learn of this worker", announce)

    def targets(self) -> list[BuildTarget]:
        """The targets that were announced in the last TTL_S seconds. Raises RedisError."""
        self._redis.zremrangebyscore(_TARGETS, "-inf", time.time() - TTL_S)
        return [BuildTarget(*json.loads(text(member))) for member in self._redis.zrange(_TARGETS, 0, -1)]

    def _try(self, consequence: str, ask: Callable[[], Reply]) -> Reply | None:
        """The reply of Redis; None if it is unreachable, with `consequence` in the log."""
        if time.monotonic() < self._paused_until:
            return None
        try:
            return ask()
        except RedisError as error:
            self._paused_until = time.monotonic() + PAUSE_S
            log.warning("shared builds cannot be reached: %s (%s: %s)", consequence, type(error).__name__, error)
            return None


def _renew(lock: Lock) -> None:
    with suppress(LockError):  # It expired during an outage, and another node may hold it now.
        lock.reacquire()


def _release(lock: Lock) -> None:
    with suppress(LockError):
        lock.release()


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
