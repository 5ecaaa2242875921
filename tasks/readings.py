"""What a worker measures of itself, its node and its device for GET /metrics: in Redis, beside its heartbeat.

Every process of the API can answer for every worker that way, and a worker needs no port of its own (ADR 19).
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from redis import Redis

from tasks.card_sampler import CardSampler
from tasks.child_board import board
from tasks.device import Device

CACHE_EVERY_S = 30.0

Reading = dict[str, Any]


def key(name: str) -> str:
    return f"worker:{name}:readings"


def readings(redis: Redis, names: list[str]) -> dict[str, Reading]:
    """By worker, what each of these said last; a worker that said nothing is left out."""
    notes = redis.mget([key(name) for name in names]) if names else []
    return {name: json.loads(note) for name, note in zip(names, notes, strict=True) if note is not None}


class Readings:
    """Of one worker's main process: `build_cache_bytes`, `standbys`, `card`; what is not known is left out."""

    def __init__(self, device: Device, builds: Path) -> None:
        """`builds` is the folder of the build cache."""
        self._sampler = CardSampler(device.name) if device.is_gpu else None
        self._builds = builds
        self._kept: int | None = None
        self._looked_at = -CACHE_EVERY_S

    def read(self) -> Reading:
        """The newest of each."""
        if time.monotonic() - self._looked_at >= CACHE_EVERY_S:
            self._kept, self._looked_at = kept_bytes(self._builds), time.monotonic()
        found = {
            "build_cache_bytes": self._kept,
            "standbys": board.standbys(),
            "card": self._sampler.reading() if self._sampler is not None else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()


def kept_bytes(builds: Path) -> int:
    """What the finished builds take that are kept below that folder (tasks/build_cache.py)."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(builds / "entries") as entries:
        for entry in entries:
            if entry.name.endswith(".tar"):
                with suppress(FileNotFoundError):
                    total += entry.stat().st_size
    return total
