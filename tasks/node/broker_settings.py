"""Checks whether the Redis that holds the job records is new enough, loses none, and refuses unknown clients."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from redis import ConnectionPool, Redis
from redis.exceptions import AuthenticationError, ResponseError

from tasks.node.redis_client import WRITE_TEST

log = logging.getLogger(__name__)

NO_PASSWORD, EVICTS, NO_APPEND_ONLY_FILE, UNKNOWN = (
    "redis-no-password",
    "redis-evicts",
    "redis-no-append-only-file",
    "redis-settings-unknown",
)
CODES = (NO_PASSWORD, EVICTS, NO_APPEND_ONLY_FILE, UNKNOWN)
AGAIN_S = 60.0
_FIX = "docs/settings.md says what a Redis of your own needs"


@dataclass(frozen=True)
class BrokerWarning:
    """`code` is stable between versions; `message` says what is wrong and how to mend it."""

    code: str
    message: str


class RedisTooOld(RuntimeError):
    """Redis lacks what the reconciler needs; the message says which versions have it."""


def require_version(redis: Redis) -> None:
    """Raise RedisTooOld unless the server knows EXPIRE's option LT (Redis 7.0); RedisError if it is unreachable."""
    try:
        redis.expire(WRITE_TEST, 60, lt=True)
    except ResponseError as error:
        raise RedisTooOld(
            f"the Redis at CELERY_BROKER_URL refuses EXPIRE with LT ({error}): use Redis 7.0 or newer, or Valkey"
        ) from error


def broker_warnings(redis: Redis) -> list[BrokerWarning]:
    """Warnings about that server's settings. Raises RedisError if it is unreachable."""
    return [*_password_warnings(redis), *_persistence_warnings(redis)]


def log_broker_warnings(warnings: list[BrokerWarning]) -> None:
    for warning in warnings:
        log.warning("%s: %s", warning.code, warning.message)


@dataclass
class BrokerCheck:
    """Checks at most once a minute, and logs new warnings. Safe to share between threads."""

    redis: Redis
    clock: Callable[[], float] = time.monotonic
    _last: list[BrokerWarning] = field(default_factory=list)
    _until: float = float("-inf")
    _lock: Lock = field(default_factory=Lock)

    def warnings(self) -> list[BrokerWarning]:
        """The current warnings. Raises RedisError if the server is unreachable; the next call then tries again."""
        with self._lock:
            if self.clock() >= self._until:
                warnings = broker_warnings(self.redis)
                log_broker_warnings([warning for warning in warnings if warning not in self._last])
                self._last, self._until = warnings, self.clock() + AGAIN_S
            return list(self._last)


def _password_warnings(redis: Redis) -> list[BrokerWarning]:
    settings = redis.connection_pool.connection_kwargs
    if is_local(settings):
        return []
    without = {**settings, "username": None, "password": None, "credential_provider": None}
    pool = ConnectionPool(connection_class=redis.connection_pool.connection_class, max_connections=1, **without)
    try:
        Redis(connection_pool=pool).ping()
    except (AuthenticationError, ResponseError):
        return []  # It requires a password, or refuses remote clients without one.
    finally:
        pool.disconnect()
    problem = "Redis requires no password: whoever reaches its port can read sources, forge verdicts. Set `requirepass`"
    return [BrokerWarning(NO_PASSWORD, f"{problem}, and the password in CELERY_BROKER_URL")]


def is_local(connection: dict[str, Any]) -> bool:
    """Whether the client connects through a socket file or a loopback address."""
    host = str(connection.get("host", ""))
    if "path" in connection or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _persistence_warnings(redis: Redis) -> list[BrokerWarning]:
    try:
        settings: dict[str, Any] = {**redis.info("memory"), **redis.info("persistence")}
    except ResponseError as error:
        return [_unknown(f"it refuses INFO ({error})")]
    warnings = []
    policy, append_only = settings.get("maxmemory_policy"), settings.get("aof_enabled")
    if policy is None or append_only is None:
        warnings.append(_unknown("its INFO names no `maxmemory_policy` or no `aof_enabled`"))
    if policy not in (None, "noeviction"):
        wrong = f"Redis evicts records if its memory is full (`maxmemory-policy` is {policy}), and jobs are lost"
        warnings.append(BrokerWarning(EVICTS, f"{wrong}. Set it to `noeviction`; {_FIX}"))
    if append_only == 0:
        wrong = "Redis has no append-only file: a restart loses accepted jobs"
        warnings.append(BrokerWarning(NO_APPEND_ONLY_FILE, f"{wrong}. Set `appendonly yes`; {_FIX}"))
    return warnings


def _unknown(why: str) -> BrokerWarning:
    return BrokerWarning(UNKNOWN, f"Redis' settings could not be checked: {why}. Check that it loses no record; {_FIX}")
