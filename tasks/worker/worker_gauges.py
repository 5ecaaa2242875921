"""What a worker's main process measures every few seconds, for GET /metrics (tasks/fleet/worker_readings.py)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tasks.evaluation.shared_counters import board
from tasks.fleet.worker_readings import Reading
from tasks.node.device_info import Device
from tasks.worker.gpu_sampler import CardSampler

CACHE_EVERY_S = 30.0


class Gauges:
    """Of one worker: its card, its children's standby runners, its node's kept builds."""

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
            "standbys": board.ready_runners(),
            "card": self._sampler.reading() if self._sampler is not None else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()


def kept_bytes(builds: Path) -> int:
    """What the finished builds take that are kept below that folder (tasks/builds/local_cache.py)."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(builds / "entries") as entries:
        for entry in entries:
            if entry.name.endswith(".tar"):
                with suppress(FileNotFoundError):
                    total += entry.stat().st_size
    return total
