"""Rate limit of an API key: a token bucket in Redis, one round trip, shared by all processes."""

from __future__ import annotations

from redis import Redis

from domain.access import Key

MINUTE_S = 60.0

# A token bucket stored as one number, the time at which it is full again (GCRA). It uses only Redis' clock and expires.
# key, microseconds per request -> 0 if admitted, else the microseconds until the next request will be
_TAKE = """
local clock = redis.call('TIME')
local now, each = clock[1] * 1000000 + clock[2], tonumber(ARGV[1])
local full = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0')) + each
local early = full - now - 60000000
if early > 0 then return math.ceil(early) end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', 60000)
return 0
"""


class Rate:
    """The token buckets of all API keys: each holds one minute's requests and refills evenly."""

    def __init__(self, redis: Redis) -> None:
        self._take = redis.register_script(_TAKE)

    def take(self, key: Key) -> float:
        """Count one request: 0 if it is admitted, else the seconds until one will be (it is not counted then)."""
        microseconds_per_request = MINUTE_S * 1e6 / key.requests_per_minute
        return int(self._take(keys=[f"rate:{key.key_id}"], args=[f"{microseconds_per_request:.3f}"])) / 1e6
