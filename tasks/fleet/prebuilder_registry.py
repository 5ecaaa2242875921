"""The registry of build-only workers: which are alive, what they build for, and which workers can use their builds."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from redis import Redis

from sandbox.isolation.layer_probe import Layers
from tasks.fleet.heartbeat import EVERY_S, TTL_S, WorkerView, living
from tasks.node.periodic_thread import PeriodicThread, failing

NAMES = "builders"
"""The set of all builder names that ever sent a heartbeat. It is separate, so that they do not count as workers."""


@dataclass(frozen=True)
class BuilderView:
    """One live build-only worker: the architectures that it `builds_for`, with which `toolchain`.

    `limitation` is what it does not build, and why. `building` is the job for which it builds now. `built` counts its
    builds and `shared` those that it shared, since it started. `failing` is as in `WorkerView`. Times are epoch
    seconds of its own clock.
    """

    name: str
    host: str
    pid: int
    started_at: float
    seen_at: float
    builds_for: list[str]
    toolchain: str
    limitation: str | None = None
    building: str | None = None
    built: int = 0
    shared: int = 0
    sandbox: dict[str, dict[str, Any]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)


def builders(redis: Redis) -> list[BuilderView]:
    """Every build-only worker that sent a heartbeat in the last TTL_S seconds, by name."""
    alive, _ = living(redis, NAMES, "builder", BuilderView)
    return alive


def unserved(judges: Sequence[WorkerView], alive: Sequence[BuilderView]) -> list[str]:
    """A sentence for each worker that accepts shared builds but gets none, although build-only workers are alive."""
    messages = []
    for judge in judges if alive else ():
        if judge.toolchain is None:
            continue
        matching = [builder for builder in alive if builder.toolchain == judge.toolchain]
        if not matching:
            toolchains = ", ".join(sorted({builder.toolchain for builder in alive}))
            messages.append(
                f"{judge.name} can use no builder's builds: its compilers or packages ({judge.toolchain}) are not "
                f"theirs ({toolchains}); run both from one image"
            )
        elif not any(judge.arch in builder.builds_for for builder in matching):
            messages.append(
                f"no builder builds for {judge.name} ({judge.arch}): add it to BUILD_FOR, or leave that empty"
            )
    return messages


class BuilderHeartbeat:
    """Sends a build-only worker's heartbeats from a thread; `update` updates them, `stop` removes the key at once."""

    def __init__(self, redis: Redis, name: str, toolchain: str, layers: Layers) -> None:
        self._redis = redis
        self._view = BuilderView(
            *(name, socket.gethostname(), os.getpid(), time.time(), time.time(), [], toolchain),
            sandbox={layer: asdict(layer_status) for layer, layer_status in layers.items()},
        )
        self._loop = PeriodicThread("heartbeat", self.beat, EVERY_S)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Raises RedisError if the heartbeat cannot be removed; it expires then."""
        self._loop.stop()
        self._redis.delete(f"builder:{self._view.name}")

    def update(self, **changes: Any) -> None:
        """Change fields of the view, from the next heartbeat on."""
        self._view = replace(self._view, **changes)

    def beat(self) -> None:
        """Send one heartbeat."""
        view = replace(self._view, seen_at=time.time(), failing=failing())
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(f"builder:{view.name}", json.dumps(asdict(view)), ex=TTL_S)
            pipe.sadd(NAMES, view.name)
            pipe.execute()
