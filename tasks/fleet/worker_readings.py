"""What each worker last said of itself, its node and its device, for GET /metrics: in Redis, beside its heartbeat.

Every process of the API can answer for every worker that way, and a worker needs no port of its own (ADR 19).
"""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

Reading = dict[str, Any]
"""`build_cache_bytes`, `standbys`, `card` (tasks/worker/gpu_sampler.py); what is not known is left out."""


def key(name: str) -> str:
    """Where that worker's is."""
    return f"worker:{name}:readings"


def readings(redis: Redis, names: list[str]) -> dict[str, Reading]:
    """By worker, what each of these said last; a worker that said nothing is left out."""
    notes = redis.mget([key(name) for name in names]) if names else []
    return {name: json.loads(note) for name, note in zip(names, notes, strict=True) if note is not None}
