"""Ensures that no two machines have a worker of one name: they would share a heartbeat, a queue and a quarantine."""

from __future__ import annotations

import json
import time

from redis import Redis

from tasks.fleet.heartbeat import EVERY_S, TTL_S, machine

POLL_S = EVERY_S / 8


def claim(redis: Redis, name: str) -> None:
    """Return once no other machine has a live worker of that name, up to TTL_S after its last heartbeat.

    Exits if one has. Raises RedisError.
    """
    last_heartbeat_at: float | None = None
    until = time.monotonic() + TTL_S + EVERY_S
    while time.monotonic() < until and (note := redis.get(f"worker:{name}")) is not None:
        heartbeat = json.loads(note)
        if heartbeat.get("machine") in (None, machine()) or machine() is None:
            return
        if last_heartbeat_at not in (None, heartbeat["seen_at"]):
            message = f"a worker {name} runs on another machine already: give each node a host name of its own"
            raise SystemExit(message)
        last_heartbeat_at = heartbeat["seen_at"]
        time.sleep(POLL_S)
