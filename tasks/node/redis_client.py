"""Connections to Redis, with timeouts and retries that suit the caller."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.retry import Retry

from domain.settings import settings

PROMPT_RETRIES = 2
PATIENT_RETRIES = 120

REFUSAL_CODES = ("OOM", "READONLY")
"""Codes of replies to writes: the memory is full (`maxmemory`), or the server is a replica, as after a failover."""

REFUSAL_TEXT = re.compile(r"(?:^|of pipeline caused error: )(?:MISCONF|NOREPLICAS) ")
"""Replies whose codes redis-py leaves in the text: Redis cannot save on its disk, or has too few replicas."""

WRITE_TEST = "service:write-test"
"""The key of `require_writes`."""

Returned = TypeVar("Returned")


class WritesRefused(RedisConnectionError):
    """Redis answers, but takes no writes now. Nothing of the refused script or command was done."""


class RetryRefusedWrites(Retry):
    """Retries a refused write like a lost connection, because the operator can end either."""

    def call_with_retry(self, do: Callable[[], Returned], *others: Any, **named: Any) -> Returned:
        def attempt() -> Returned:
            try:
                return do()
            except ResponseError as error:
                if error.status_code in REFUSAL_CODES or REFUSAL_TEXT.search(str(error)):
                    raise WritesRefused(f"Redis takes no writes: {str(error).rstrip('.')}") from error
                raise

        return super().call_with_retry(attempt, *others, **named)


def connect(*, patient: bool = False, waits: bool = True) -> Redis:
    """A client of the configured Redis; connects on first use and is safe to share between threads.

    A prompt client gives up after about 0.1 s if no server listens, because an HTTP request must be answered. A patient
    one retries for about 2 minutes, so that a worker with a finished job outlasts a restart of Redis. Without `waits`,
    a Redis that is silent for 5 s counts as unreachable too, for optional work. A write that Redis refuses because its
    memory or disk is full is retried in the same way, and raises WritesRefused in the end.
    """
    if patient:
        backoff, tries = ExponentialBackoff(cap=1.0, base=0.05), PATIENT_RETRIES
    else:
        backoff, tries = ExponentialBackoff(cap=0.1, base=0.02), PROMPT_RETRIES
    # Without `waits`, a timeout is not retried.
    retry = RetryRefusedWrites(backoff, tries) if waits else RetryRefusedWrites(backoff, tries, (RedisConnectionError,))
    return Redis.from_url(
        settings().broker_url,
        retry=retry,
        socket_timeout=5.0,
        socket_connect_timeout=2.0,
        socket_keepalive=True,
        health_check_interval=25,
    )


def require_writes(redis: Redis) -> None:
    """Write one small key; raises RedisError where Redis is unreachable, and WritesRefused where it takes no writes."""
    redis.set(WRITE_TEST, 1, ex=60)


def text(value: Any) -> str:
    """A Redis reply as text, whether or not the client decodes replies."""
    return value.decode() if isinstance(value, bytes) else str(value)
