"""Rate limit of an API key: a token bucket in Redis, one round trip, shared by all processes."""

from __future__ import annotations

from redis import Redis

from domain.access import Key
from tasks.jobs.job_scripts import LUA
from tasks.node.lua_script import LuaScript

MINUTE_S = 60.0


class Rate:
    """The token buckets of all API keys: each holds one minute's requests and refills evenly."""

    def __init__(self, redis: Redis) -> None:
        self._take = LuaScript(redis, LUA / "take_request.lua")

    def take(self, key: Key) -> float:
        """Count one request: 0 if it is admitted, else the seconds until one will be (it is not counted then)."""
        each = MINUTE_S * 1e6 / key.requests_per_minute
        return int(self._take({"each": each}, keys=[f"rate:{key.key_id}"])) / 1e6
