"""Gauges of a worker's main process, updated every few seconds for GET /metrics (tasks/fleet/worker_readings.py)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tasks.fleet.worker_readings import Reading
from tasks.node.device_info import Device
from tasks.worker.gpu_sampler import CardSampler

CACHE_EVERY_S = 30.0


class Gauges:
    """Gauges of one worker: its card, and its node's build cache."""

    def __init__(self, device: Device, builds: Path) -> None:
        """`builds` is the folder of the build cache."""
        self._sampler = CardSampler(device.name) if device.is_gpu else None
        self._builds = builds
        self._cache_bytes: int | None = None
        self._measured_at = -CACHE_EVERY_S

    def read(self) -> Reading:
        if time.monotonic() - self._measured_at >= CACHE_EVERY_S:
            self._cache_bytes, self._measured_at = cached_build_bytes(self._builds), time.monotonic()
        gauges = {
            "build_cache_bytes": self._cache_bytes,
            "card": self._sampler.reading() if self._sampler is not None else None,
        }
        return {name: value for name, value in gauges.items() if value is not None}

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()


def cached_build_bytes(builds: Path) -> int:
    """Bytes of the finished builds in the build cache of that folder (tasks/builds/local_cache.py)."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(builds / "entries") as entries:
        for entry in entries:
            if entry.name.endswith(".zip"):
                with suppress(FileNotFoundError):
                    total += entry.stat().st_size
    return total
