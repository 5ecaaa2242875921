"""Which build-only workers are alive, what they build for, and whether anybody can use it."""

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
"""The set of all names that ever said they live. Not among the workers': whoever counts those counts judges."""


@dataclass(frozen=True)
class BuilderView:
    """One living builder: the architectures that it `builds_for`, by which `toolchain` (`tasks.node.toolchain`).

    `left_out` says what it does not build, and why. `building` is the job for which it builds at the moment, `built`
    how many builds it has made and `shipped` how many it has handed on since it started. `failing` is as a
    worker's. Times are epoch seconds of its own clock.
    """

    name: str
    host: str
    pid: int
    started_at: float
    seen_at: float
    builds_for: list[str]
    toolchain: str
    left_out: str | None = None
    building: str | None = None
    built: int = 0
    shipped: int = 0
    sandbox: dict[str, dict[str, Any]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)


def builders(redis: Redis) -> list[BuilderView]:
    """Every builder that was heard of in the last TTL_S seconds, by name."""
    alive, _ = living(redis, NAMES, "builder", BuilderView)
    return alive


def unserved(judges: Sequence[WorkerView], alive: Sequence[BuilderView]) -> list[str]:
    """Of the workers that would take others' builds, who gets none although builders live; sentences."""
    told = []
    for judge in judges if alive else ():
        if judge.toolchain is None:
            continue
        alike = [builder for builder in alive if builder.toolchain == judge.toolchain]
        if not alike:
            theirs = ", ".join(sorted({builder.toolchain for builder in alive}))
            told.append(
                f"{judge.name} can use no builder's builds: its compilers or packages ({judge.toolchain}) are not "
                f"theirs ({theirs}); run both from one image"
            )
        elif not any(judge.arch in builder.builds_for for builder in alike):
            told.append(f"no builder builds for {judge.name} ({judge.arch}): name it in BUILD_FOR, or leave that empty")
    return told


class BuilderHeartbeat:
    """Says that a builder lives, from a thread; `tell` changes what it says, `stop` takes the word back at once."""

    def __init__(self, redis: Redis, name: str, toolchain: str, layers: Layers) -> None:
        self._redis = redis
        self._view = BuilderView(
            *(name, socket.gethostname(), os.getpid(), time.time(), time.time(), [], toolchain),
            sandbox={layer: asdict(how) for layer, how in layers.items()},
        )
        self._loop = PeriodicThread("heartbeat", self.beat, EVERY_S)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Raises RedisError where the word cannot be taken back: it expires."""
        self._loop.stop()
        self._redis.delete(f"builder:{self._view.name}")

    def tell(self, **changes: Any) -> None:
        """From the next beat on."""
        self._view = replace(self._view, **changes)

    def beat(self) -> None:
        """Say it once."""
        view = replace(self._view, seen_at=time.time(), failing=failing())
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(f"builder:{view.name}", json.dumps(asdict(view)), ex=TTL_S)
            pipe.sadd(NAMES, view.name)
            pipe.execute()
