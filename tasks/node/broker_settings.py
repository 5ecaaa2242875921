"""Whether the Redis that holds the job records is set up to keep them, and to keep strangers out."""

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
    """`code` stays the same from version to version; `message` says what is wrong, and what to do."""

    code: str
    message: str


def broker_warnings(redis: Redis) -> list[BrokerWarning]:
    """The warnings about that server's settings. Raises RedisError where it cannot be reached."""
    return [*_of_password(redis), *_of_keeping(redis)]


def log_broker_warnings(warnings: list[BrokerWarning]) -> None:
    """A line in the log for each."""
    for warning in warnings:
        log.warning("%s: %s", warning.code, warning.message)


@dataclass
class BrokerLook:
    """The warnings, looked for at most once a minute; what is new is logged. Safe to share between threads."""

    redis: Redis
    clock: Callable[[], float] = time.monotonic
    _last: list[BrokerWarning] = field(default_factory=list)
    _until: float = float("-inf")
    _lock: Lock = field(default_factory=Lock)

    def warnings(self) -> list[BrokerWarning]:
        """Raises RedisError where the server cannot be reached; the next call asks it again then."""
        with self._lock:
            if self.clock() >= self._until:
                warnings = broker_warnings(self.redis)
                log_broker_warnings([each for each in warnings if each not in self._last])
                self._last, self._until = warnings, self.clock() + AGAIN_S
            return list(self._last)


def _of_password(redis: Redis) -> list[BrokerWarning]:
    own = redis.connection_pool.connection_kwargs
    if _is_of_this_machine(own):
        return []
    without = {**own, "username": None, "password": None, "credential_provider": None}
    pool = ConnectionPool(connection_class=redis.connection_pool.connection_class, max_connections=1, **without)
    try:
        Redis(connection_pool=pool).ping()
    except (AuthenticationError, ResponseError):
        return []  # It asks for a password, or lets in nobody from elsewhere who has none.
    finally:
        pool.disconnect()
    problem = "Redis asks for no password: who reaches its port reads sources and forges verdicts. Set `requirepass`"
    return [BrokerWarning(NO_PASSWORD, f"{problem}, and the password in CELERY_BROKER_URL")]


def _is_of_this_machine(connection: dict[str, Any]) -> bool:
    """Whether the address that it is reached by is a socket's path or a loopback address."""
    host = str(connection.get("host", ""))
    if "path" in connection or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _of_keeping(redis: Redis) -> list[BrokerWarning]:
    try:
        settings: dict[str, Any] = {**redis.info("memory"), **redis.info("persistence")}
    except ResponseError as error:
        return [_unknown(f"it refuses INFO ({error})")]
    warnings = []
    policy, append_only = settings.get("maxmemory_policy"), settings.get("aof_enabled")
    if policy is None or append_only is None:
        warnings.append(_unknown("its INFO names no `maxmemory_policy` or no `aof_enabled`"))
    if policy not in (None, "noeviction"):
        wrong = f"Redis drops records where its memory is full (`maxmemory-policy` is {policy}), and jobs vanish"
        warnings.append(BrokerWarning(EVICTS, f"{wrong}. Set it to `noeviction`; {_FIX}"))
    if append_only == 0:
        wrong = "Redis has no append-only file: what it has accepted is lost when it restarts"
        warnings.append(BrokerWarning(NO_APPEND_ONLY_FILE, f"{wrong}. Set `appendonly yes`; {_FIX}"))
    return warnings


def _unknown(why: str) -> BrokerWarning:
    return BrokerWarning(UNKNOWN, f"whether Redis keeps all records is not known: {why}. See to it yourself; {_FIX}")
