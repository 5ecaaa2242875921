"""How fast one API key may ask: a token bucket in Redis, one round trip, true over all processes."""

from __future__ import annotations

from redis import Redis

from domain.access import Key

MINUTE_S = 60.0

# A token bucket kept as one number: when it will be full again (GCRA). No clock but the server's, nothing to tidy.
# key, microseconds per request; -> 0, or the microseconds until the next request would be let in
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
    """The buckets of all keys: each holds a minute's requests and is refilled evenly."""

    def __init__(self, redis: Redis) -> None:
        self._take = redis.register_script(_TAKE)

    def take(self, key: Key) -> float:
        """Count one request: 0 when it is let in, else the seconds until one will be (and it was not counted)."""
        each = MINUTE_S * 1e6 / key.requests_per_minute
        return int(self._take(keys=[f"rate:{key.key_id}"], args=[f"{each:.3f}"])) / 1e6
