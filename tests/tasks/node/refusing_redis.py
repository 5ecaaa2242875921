"""A real Redis that takes no writes for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis


@contextmanager
def full_memory(redis: Redis) -> Iterator[None]:
    """Its memory is full inside the block: every command that could enlarge it is refused with OOM."""
    redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)


def refused(redis: Redis, code: str) -> int:
    """How many commands that server has refused with this code."""
    counted = redis.info("errorstats").get(f"errorstat_{code}")
    return int(counted["count"]) if counted else 0
