"""The latest readings of each worker, its node and its device, stored in Redis for GET /metrics.

Every process of the API can therefore report every worker, and a worker needs no port of its own (ADR 29).
"""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

Reading = dict[str, Any]
"""`build_cache_bytes`, `card` (tasks/worker/gpu_sampler.py); unknown readings are omitted."""


def key(name: str) -> str:
    """The Redis key of that worker's readings."""
    return f"worker:{name}:readings"


def readings(redis: Redis, names: list[str]) -> dict[str, Reading]:
    """The latest readings of these workers; workers without any are omitted."""
    notes = redis.mget([key(name) for name in names]) if names else []
    return {name: json.loads(note) for name, note in zip(names, notes, strict=True) if note is not None}
