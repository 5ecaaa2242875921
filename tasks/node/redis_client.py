"""The connection to Redis, with timeouts and retries that fit who waits for the answer."""

from __future__ import annotations

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from domain.settings import settings

PROMPT_RETRIES = 2
PATIENT_RETRIES = 120


def connect(*, patient: bool = False, waits: bool = True) -> Redis:
    """A client of the settings' Redis; connects on first use and is safe to share between threads.

    Prompt clients give up after about 0.1 s when nobody listens: an HTTP request must be answered. Patient ones try
    about 2 minutes: a worker that holds a finished job outlasts a restart of Redis. Without `waits` a Redis that is
    silent for 5 s is given up as well: for what can be done without.
    """
    if patient:
        backoff, tries = ExponentialBackoff(cap=1.0, base=0.05), PATIENT_RETRIES
    else:
        backoff, tries = ExponentialBackoff(cap=0.1, base=0.02), PROMPT_RETRIES
    # Else also after silence.
    retry = Retry(backoff, tries) if waits else Retry(backoff, tries, (RedisConnectionError,))
    return Redis.from_url(
        settings().broker_url,
        retry=retry,
        socket_timeout=5.0,
        socket_connect_timeout=2.0,
        socket_keepalive=True,
        health_check_interval=25,
    )
