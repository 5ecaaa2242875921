"""Connections to Redis, with timeouts and retries that suit the caller."""

from __future__ import annotations

from typing import Any

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from domain.settings import settings

PROMPT_RETRIES = 2
PATIENT_RETRIES = 120


def connect(*, patient: bool = False, waits: bool = True) -> Redis:
    """A client of the configured Redis; connects on first use and is safe to share between threads.

    A prompt client gives up after about 0.1 s if no server listens, because an HTTP request must be answered. A patient
    one retries for about 2 minutes, so that a worker with a finished job outlasts a restart of Redis. Without `waits`,
    a Redis that is silent for 5 s counts as unreachable too, for optional work.
    """
    if patient:
        backoff, tries = ExponentialBackoff(cap=1.0, base=0.05), PATIENT_RETRIES
    else:
        backoff, tries = ExponentialBackoff(cap=0.1, base=0.02), PROMPT_RETRIES
    # Without `waits`, a timeout is not retried.
    retry = Retry(backoff, tries) if waits else Retry(backoff, tries, (RedisConnectionError,))
    return Redis.from_url(
        settings().broker_url,
        retry=retry,
        socket_timeout=5.0,
        socket_connect_timeout=2.0,
        socket_keepalive=True,
        health_check_interval=25,
    )


def text(value: Any) -> str:
    """A Redis reply as text, whether or not the client decodes replies."""
    return value.decode() if isinstance(value, bytes) else str(value)
