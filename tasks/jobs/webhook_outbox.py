"""Who wants to be told of a job's end, and which of them have not been told yet: in Redis, so that restarts lose none.

Keys: `job:<id>:webhook`, address and secret as JSON, recorded with the job, until it is told or given up. The jobs that
have ended and are to be told stand in groups, as one group's receivers may be slow: that of an API key, without keys
that of a host. `webhooks:due:<group>` has a group's jobs and `webhooks:due` the groups, both by the time of the next
try; `webhooks:group_of` has a job's group. `finish` in `tasks/jobs/job_lua_lib.py`, which is every job's end, adds to
them. What has become of it is in the job's record, without the secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from redis import Redis

from tasks.jobs.job_view import text

DUE, OF_GROUP, GROUP_OF = "webhooks:due", "webhooks:due:", "webhooks:group_of"
KEPT_S = 30 * 86_400
"""Longer than jobs wait in a queue."""
HELD_S = 60
"""A sender that has not said for so long what became of a try counts as gone."""
PAUSES_S = (10, 60, 300, 1800, 7200)
"""Between the tries."""
ERROR_CHARS = 300

WEBHOOKS = f"""
-- A group stands where its first job does, and nowhere without one.
local function place_webhooks(group)
  local first = redis.call('ZRANGE', '{OF_GROUP}' .. group, 0, 0, 'WITHSCORES')
  if first[1] then redis.call('ZADD', '{DUE}', first[2], group) else redis.call('ZREM', '{DUE}', group) end
end
local function tell_webhook(each, at)
  local group = redis.call('HGET', '{GROUP_OF}', each)
  if not group then
    local hook = redis.call('GET', 'job:' .. each .. ':webhook') or ''
    local key = redis.call('HGET', 'job:' .. each, 'key_id')
    group = key and 'key:' .. key or 'host:' .. (hook:match('"url": "%a+://([^/?#"]*)') or '')
    redis.call('HSET', '{GROUP_OF}', each, group)
  end
  redis.call('ZADD', '{OF_GROUP}' .. group, at, each)
  place_webhooks(group)
end
local function forget_webhook(each)
  local group = redis.call('HGET', '{GROUP_OF}', each)
  if group then
    redis.call('ZREM', '{OF_GROUP}' .. group, each)
    redis.call('HDEL', '{GROUP_OF}', each)
    place_webhooks(group)
  end
  redis.call('DEL', 'job:' .. each .. ':webhook')
end
"""
"""Lua functions, for what ends a job as well."""

_CLOCK = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function text(at) return string.format('%.6f', at) end
"""

# groups that are not to be chosen from -> job, webhook or '', what became of it so far, group
_TAKE = (
    WEBHOOKS
    + _CLOCK
    + f"""
local busy = {{}}
for _, group in ipairs(ARGV) do busy[group] = true end
local function chosen()
  -- As many as may be busy are passed by; of the first that is not, the first job.
  local groups = redis.call('ZRANGEBYSCORE', '{DUE}', '-inf', text(now), 'LIMIT', 0, #ARGV + 1)
  for _, group in ipairs(groups) do
    if not busy[group] then return group, redis.call('ZRANGE', '{OF_GROUP}' .. group, 0, 0)[1] end
  end
end
local group, due = chosen()
if not group then return false end
if not due then
  -- A job, which an earlier version has put among the groups.
  redis.call('ZREM', '{DUE}', group)
  if redis.call('EXISTS', 'job:' .. group .. ':webhook') == 1 then tell_webhook(group, text(now)) end
  return {{group, ''}}
end
local hook = redis.call('GET', 'job:' .. due .. ':webhook')
if not hook or redis.call('EXISTS', 'job:' .. due) == 0 then
  forget_webhook(due)
  return {{due, ''}}
end
tell_webhook(due, text(now + {HELD_S}))
return {{due, hook, redis.call('HGET', 'job:' .. due, 'webhook'), group}}
"""
)

# job, what became of it (JSON), seconds until the next try or ''
_SETTLE = (
    WEBHOOKS
    + _CLOCK
    + """
local job = 'job:' .. ARGV[1]
if redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, 'webhook', ARGV[2])
  redis.call('PUBLISH', 'jobs:changed', ARGV[1])
end
if ARGV[3] == '' then forget_webhook(ARGV[1]) else tell_webhook(ARGV[1], text(now + ARGV[3])) end
"""
)


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
    """A job's end that is to be told now; `attempts` tries went before. `group`: whose receivers, by key or host."""

    job_id: str
    webhook: Webhook
    attempts: int
    group: str


class Webhooks:
    """Every method is one round trip, safe from any thread and process. A try may be made twice, none is lost."""

    def __init__(self, redis: Redis) -> None:
        self._take = redis.register_script(_TAKE)
        self._settle = redis.register_script(_SETTLE)

    def take(self, busy: Collection[str] = ()) -> Due | None:
        """The next that is to be told, but of no group that is `busy`, held for this caller; None where nothing is."""
        while (found := self._take(args=list(busy))) is not None:
            if found[1]:
                hook, told = json.loads(found[1]), json.loads(found[2] or "{}")
                webhook = Webhook(hook["url"], hook["secret"])
                return Due(text(found[0]), webhook, int(told.get("attempts", 0)), text(found[3]))
        return None

    def delivered(self, due: Due) -> None:
        self._note(due, "delivered", None, None)

    def failed(self, due: Due, error: str, *, final: bool = False) -> None:
        """To be tried again after a pause, or given up: `final`, or all tries made."""
        again = not final and due.attempts < len(PAUSES_S)
        pause = PAUSES_S[due.attempts] if again else None
        self._note(due, "pending" if again else "failed", error, pause)

    def _note(self, due: Due, state: str, error: str | None, pause_s: int | None) -> None:
        told = {"state": state, "attempts": due.attempts + 1, "last_error": error[:ERROR_CHARS] if error else None}
        self._settle(args=[due.job_id, json.dumps(told), "" if pause_s is None else pause_s])
