"""Heartbeats: each worker writes a key to Redis every few seconds, which expires when the worker stops."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from domain.paths import code_of
from sandbox.isolation.layer_probe import Layers
from tasks.fleet.quarantine import FAULTS, QUARANTINED
from tasks.fleet.worker_readings import Reading, key
from tasks.node.device_info import Device
from tasks.node.periodic_thread import PeriodicThread, failing
from tasks.node.redis_client import text

EVERY_S = 3.0
TTL_S = 10
NAMES = "workers"
"""The set of all worker names that ever sent a heartbeat; the reconciler drops names whose key has expired."""

MODELS = "workers:gpu"
"""A hash: the model of each worker's device, as requests name it."""

SETUPS = "workers:setup"
"""A hash: each worker's fingerprint, on which its results depend (`_fingerprint`)."""

JUDGES = ("domain", "backends", "sandbox", "profiling", "validation", "tasks")
"""Packages whose code determines a result."""

ALL_MODELS = "gpus"
"""The set of all device models that a worker ever had."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux' boot id: new at each boot (random(4)), and shared by all containers of a host."""

PACKAGES = ("celery", "torch", "triton", "cupy-cuda13x", "cuda-bindings")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerView:
    """One live worker. It runs `max_workers` jobs at once, or none while it is `quarantined` (the reason).

    `sandbox` describes its sandbox layers by name (`sandbox.isolation.layer_probe`): `active` and `detail`. `arch` is
    the target of its builds. `failing` has a sentence for each periodic thread whose last call failed. Times are epoch
    seconds of the worker's clock.
    """

    name: str
    host: str
    pid: int
    device: str
    gpu_available: bool
    gpu_index: int | None
    gpu_uuid: str | None
    gpu_name: str | None
    gpu_type: str | None
    max_workers: int
    started_at: float
    seen_at: float
    versions: dict[str, str] = field(default_factory=dict)
    sandbox: dict[str, dict[str, Any]] = field(default_factory=dict)
    quarantined: str | None = None
    gpu_model: str | None = None
    arch: str | None = None
    failing: list[str] = field(default_factory=list)


def workers(redis: Redis) -> list[WorkerView]:
    """Every worker that sent a heartbeat in the last TTL_S seconds, by name.

    A heartbeat of a later version may have more fields than `WorkerView`. One with missing fields is skipped and logged
    once, because a bad writer must not make readers fail.
    """
    ever = sorted(text(name) for name in redis.smembers(NAMES))
    if not ever:
        return []
    notes = redis.mget([f"worker:{name}" for name in ever])
    alive = [_parsed(name, note) for name, note in zip(ever, notes, strict=True) if note is not None]
    return [one for one in alive if one is not None]


def forget_silent_workers(redis: Redis) -> None:
    """Drop all names whose heartbeat has expired.

    No heartbeat counts for longer than TTL_S from now: one from before Redis' clock was set back would, for hours.
    """
    names = [text(name) for name in redis.smembers(NAMES)]
    with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.expire(f"worker:{name}", TTL_S, lt=True)
            pipe.exists(f"worker:{name}")
        gone = [name for name, alive in zip(names, pipe.execute()[1::2], strict=True) if not alive]
    if gone:
        redis.srem(NAMES, *gone)
        for figures in (FAULTS, QUARANTINED, MODELS, SETUPS):
            redis.hdel(figures, *gone)


def _parsed(name: str, note: str | bytes) -> WorkerView | None:
    names = {each.name for each in fields(WorkerView)}
    try:
        return WorkerView(**{name: value for name, value in json.loads(note).items() if name in names})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        _warn_once(name, f"{type(error).__name__}: {error}"[:200])
        return None


@cache
def _warn_once(name: str, reason: str) -> None:
    log.warning("skipping the heartbeat of %s, which may be of another version: %s", name, reason)


class Heartbeat:
    """Sends a worker's heartbeats from a thread of its main process; `stop` removes the heartbeat at once."""

    def __init__(
        self,
        redis: Redis,
        name: str,
        device: Device,
        max_workers: int,
        layers: Layers,
        quarantined: Callable[[], str | None] = lambda: None,
        readings: Callable[[], Reading] = dict,
    ) -> None:
        self._redis = redis
        self._name = name
        self._model = device.model
        versions = _versions(device)
        self._setup = _fingerprint(device, versions)
        self._quarantined = quarantined
        self._readings = readings
        self._facts = {
            **{"name": name, "host": socket.gethostname(), "pid": os.getpid()},
            **{"device": "cuda:0" if device.is_gpu else device.name, "gpu_available": device.is_gpu},
            **{"gpu_uuid": device.name if device.is_gpu else None, "gpu_index": device.gpu_index},
            **{"gpu_name": device.gpu_name, "gpu_type": device.gpu_type},
            **{"gpu_model": device.model, "arch": device.arch},
            **{"max_workers": max_workers, "started_at": time.time(), "versions": versions},
            "sandbox": {name: asdict(layer) for name, layer in layers.items()},
        }
        self._loop = PeriodicThread("heartbeat", self.beat, EVERY_S)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()
        try:
            self._redis.delete(f"worker:{self._name}", key(self._name))
        except RedisError as error:
            log.warning("this worker counts as alive for another %d s: %s", TTL_S, error)

    def beat(self) -> None:
        now = {"seen_at": time.time(), "quarantined": self._quarantined()}
        view = WorkerView(**self._facts, **now, failing=failing())  # type: ignore[arg-type]
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(f"worker:{self._name}", json.dumps({**asdict(view), "machine": machine()}), ex=TTL_S)
            pipe.set(key(self._name), json.dumps(self._current_readings()), ex=TTL_S)
            pipe.sadd(NAMES, self._name)
            pipe.hset(MODELS, self._name, self._model)
            pipe.hset(SETUPS, self._name, self._setup)
            pipe.sadd(ALL_MODELS, self._model)
            pipe.execute()

    def _current_readings(self) -> Reading:
        """The worker's readings; empty if they fail, because a heartbeat must not depend on metrics."""
        try:
            return self._readings()
        except Exception as error:
            log.warning("this worker's metrics are unavailable: %s: %s", type(error).__name__, error)
            return {}


@cache
def machine() -> str | None:
    """Identifies this boot of the machine and this container, so a process that restarts here is recognised."""
    try:
        return f"{BOOT_ID.read_text(encoding='ascii').strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def _versions(device: Device) -> dict[str, str]:
    from backends.languages import registry  # The API reads heartbeats too, and its image has no backends.

    versions = {"driver": device.driver} if device.driver else {}
    for package in (*PACKAGES, *registry.PACKAGES):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _fingerprint(device: Device, versions: dict[str, str]) -> str:
    """Equal for two workers that would, as far as known, produce the same result for the same request."""
    facts = [device.model, device.driver, platform.python_version(), platform.machine(), sorted(versions.items())]
    return hashlib.sha256(json.dumps([*facts, _judging_code()]).encode()).hexdigest()[:16]


@cache
def _judging_code() -> str:
    return hashlib.sha256(code_of(JUDGES)).hexdigest()
