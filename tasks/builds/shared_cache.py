"""The build cache of all nodes, in Redis: finished builds by a digest of their inputs.

No job depends on it: a build that is lost or unreadable is made again. docs/adr/0027 has the reasons.

Keys: `builds:archives` has each compressed archive by build key, `builds:stored` the times at which they were stored (a
sorted set, epoch seconds of Redis' clock), `builds:bytes` their total size. `builds:targets` has what workers have
asked builds for, with the time of the last request.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from redis import Redis
from redis.exceptions import RedisError

from tasks.builds.archive import UNREADABLE, deflated
from tasks.builds.local_cache import BuildCache
from tasks.jobs.job_scripts import SHARED
from tasks.node.lua_script import LuaScript
from tasks.node.redis_client import text

TTL_S = 86_400
"""Seconds after the last build was stored, or the last target announced, until everything expires."""

MAX_PACKED_BYTES = 32 << 20
"""Maximum bytes of one build. Redis serves nothing else meanwhile: 32 MiB take a third of a second at 1 Gbit/s."""

PAUSE_S = 10.0

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


class SharedBuilds:
    """The builds that nodes share, up to `limit` bytes of Redis' memory; the oldest are evicted first.

    After an error, Redis is not asked for PAUSE_S, and every node builds for itself; the log says so.
    """

    def __init__(self, redis: Redis, limit: int) -> None:
        self._redis = redis
        self._limit = limit
        self._paused_until = 0.0
        self._store_build = LuaScript(redis, SHARED / "argument.lua", _STORE)

    def contains(self, key: str) -> bool:
        """Whether that build is shared. Raises RedisError."""
        return bool(self._redis.hexists("builds:archives", key))

    def fetch(self, key: str, cache: BuildCache) -> bool:
        """Store a shared build in a node's cache; False if there is none, or if that fails.

        An invalid archive is removed from Redis. An error of the node's disk says nothing about the archive.
        """
        packed = self._try("builds are made here", lambda: self._redis.hget("builds:archives", key))
        if packed is None:
            return False
        try:
            if len(packed) > MAX_PACKED_BYTES:
                raise ValueError("it is larger than any shared build")
            cache.receive(key, cast("bytes", packed))  # The client does not decode replies.
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
            packed = deflated(archive)
        except UNREADABLE as error:
            log.warning("the build %s is not shared: %s", key, error)
            return False
        if len(packed) > min(MAX_PACKED_BYTES, self._limit):
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
