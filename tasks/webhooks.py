"""Who wants to be told of a job's end, and which of them have not been told yet: in Redis, so that restarts lose none.

Keys: `job:<id>:webhook`, address and secret as JSON, recorded with the job, until it is told or given up;
`webhooks:due`, the jobs that have ended and are to be told, by the time of the next try; `finish` in
`tasks/record_functions.py`, which is every job's end, adds to it. What has become of it is in
the job's record, without the secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from redis import Redis

from tasks.job_view import text

DUE = "webhooks:due"
KEPT_S = 30 * 86_400
"""Longer than jobs wait in a queue."""
HELD_S = 60
"""A sender that has not said for so long what became of a try counts as gone."""
PAUSES_S = (10, 60, 300, 1800, 7200)
"""Between the tries."""
ERROR_CHARS = 300

# '' -> job, webhook
_TAKE = f"""
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local due = redis.call('ZRANGEBYSCORE', '{DUE}', '-inf', string.format('%.6f', now), 'LIMIT', 0, 1)[1]
if not due then return false end
local hook = redis.call('GET', 'job:' .. due .. ':webhook')
if not hook or redis.call('EXISTS', 'job:' .. due) == 0 then
  redis.call('ZREM', '{DUE}', due)
  redis.call('DEL', 'job:' .. due .. ':webhook')
  return {{due, ''}}
end
redis.call('ZADD', '{DUE}', string.format('%.6f', now + {HELD_S}), due)
return {{due, hook, redis.call('HGET', 'job:' .. due, 'webhook')}}
"""

# job, what became of it (JSON), seconds until the next try or ''
_SETTLE = f"""
local job = 'job:' .. ARGV[1]
if redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, 'webhook', ARGV[2])
  redis.call('PUBLISH', 'jobs:changed', ARGV[1])
end
if ARGV[3] == '' then
  redis.call('ZREM', '{DUE}', ARGV[1])
  redis.call('DEL', job .. ':webhook')
else
  local clock = redis.call('TIME')
  redis.call('ZADD', '{DUE}', string.format('%.6f', clock[1] + clock[2] / 1000000 + ARGV[3]), ARGV[1])
end
"""


@dataclass(frozen=True)
class Webhook:
    """Where to tell of a job's end; `secret` signs it. Never shown: its text is without the secret."""

    url: str
    secret: str | None

    @property
    def stored(self) -> str:
        return json.dumps({"url": self.url, "secret": self.secret})

    def __repr__(self) -> str:
        return f"Webhook({self.url!r})"


@dataclass(frozen=True)
class Due:
    """A job's end that is to be told now; `attempts` tries went before."""

    job_id: str
    webhook: Webhook
    attempts: int


class Webhooks:
    """Every method is one round trip, safe from any thread and process. A try may be made twice, none is lost."""

    def __init__(self, redis: Redis) -> None:
        self._take = redis.register_script(_TAKE)
        self._settle = redis.register_script(_SETTLE)

    def take(self) -> Due | None:
        """The next that is to be told, held for this caller; None where nothing is due."""
        while (found := self._take()) is not None:
            if found[1]:
                hook, told = json.loads(found[1]), json.loads(found[2] or "{}")
                return Due(text(found[0]), Webhook(hook["url"], hook["secret"]), int(told.get("attempts", 0)))
        return None

    def delivered(self, due: Due) -> None:
        self._note(due, "delivered", None, None)

    def failed(self, due: Due, error: str, *, final: bool = False) -> None:
        """To be tried again after a pause, or given up: `final`, or all tries made."""
        again = not final and due.attempts < len(PAUSES_S)
        pause = PAUSES_S[due.attempts] if again else None
        self._note(due, "pending" if again else "given_up", error, pause)

    def _note(self, due: Due, state: str, error: str | None, pause_s: int | None) -> None:
        told = {"state": state, "attempts": due.attempts + 1, "last_error": error[:ERROR_CHARS] if error else None}
        self._settle(args=[due.job_id, json.dumps(told), "" if pause_s is None else pause_s])
