"""That a worker's name is its own: it takes what it finds under that name for what an earlier life of its own has left.

Of two machines of one host name the second would so have the jobs begun anew that the first one runs.
"""

from __future__ import annotations

import json
import time

from redis import Redis

from tasks.fleet.heartbeat import EVERY_S, TTL_S
from tasks.node.machine_id import machine

LOOK_S = EVERY_S / 8


def claim(redis: Redis, name: str) -> None:
    """Returns when nobody elsewhere lives under that name, TTL_S after he last said so. Exits where somebody does.

    Raises RedisError.
    """
    heard: float | None = None
    until = time.monotonic() + TTL_S + EVERY_S
    while time.monotonic() < until and (note := redis.get(f"worker:{name}")) is not None:
        said = json.loads(note)
        if said.get("machine") in (None, machine()) or machine() is None:
            return
        if heard not in (None, said["seen_at"]):
            told = f"a worker {name} lives on another machine already: give each node a host name of its own"
            raise SystemExit(told)
        heard = said["seen_at"]
        time.sleep(LOOK_S)
