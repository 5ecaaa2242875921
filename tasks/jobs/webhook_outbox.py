"""Outbox of webhooks in Redis: which clients must be notified of a job's end. A restart loses none.

Keys: `job:<id>:webhook` has URL and secret as JSON; it is recorded with the job and deleted when the webhook was
delivered or given up. Due webhooks are in groups, because the receivers of one group may be slow. A group is an API
key, or a host for jobs without a key. `webhooks:due:<group>` has the jobs of a group and `webhooks:due` the groups,
both by the time of the next try. `webhooks:group_of` has the group of each job. `finish` in
`tasks/jobs/job_script_functions.py`, the end of every job, adds to them. The job's record has the delivery state,
without the secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from redis import Redis

from tasks.jobs.job_view import text

DUE, OF_GROUP, GROUP_OF = "webhooks:due", "webhooks:due:", "webhooks:group_of"
WEBHOOK_TTL_S = 30 * 86_400
"""Maximum age of a stored webhook, in s: longer than jobs wait in a queue."""
RESERVED_S = 60
"""Seconds after which a sender that reported no outcome of a try counts as dead."""
PAUSES_S = (10, 60, 300, 1800, 7200)
"""Pauses between the tries of a delivery, in s."""
ERROR_CHARS = 300

WEBHOOKS = f"""
-- Sorts a group by its first job; a group without jobs is removed.
local function sort_group(group)
  local first = redis.call('ZRANGE', '{OF_GROUP}' .. group, 0, 0, 'WITHSCORES')
  if first[1] then redis.call('ZADD', '{DUE}', first[2], group) else redis.call('ZREM', '{DUE}', group) end
end
local function schedule_webhook(each, at)
  local group = redis.call('HGET', '{GROUP_OF}', each)
  if not group then
    local hook = redis.call('GET', 'job:' .. each .. ':webhook') or ''
    local key = redis.call('HGET', 'job:' .. each, 'key_id')
    group = key and 'key:' .. key or 'host:' .. (hook:match('"url": "%a+://([^/?#"]*)') or '')
    redis.call('HSET', '{GROUP_OF}', each, group)
  end
  redis.call('ZADD', '{OF_GROUP}' .. group, at, each)
  sort_group(group)
end
local function remove_webhook(each)
  local group = redis.call('HGET', '{GROUP_OF}', each)
  if group then
    redis.call('ZREM', '{OF_GROUP}' .. group, each)
    redis.call('HDEL', '{GROUP_OF}', each)
    sort_group(group)
  end
  redis.call('DEL', 'job:' .. each .. ':webhook')
end
"""
"""Lua functions for due webhooks; the end of a job uses them too."""

_CLOCK = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function text(at) return string.format('%.6f', at) end
"""

# busy groups -> job, webhook or '', delivery state, group
_TAKE = (
    WEBHOOKS
    + _CLOCK
    + f"""
local busy = {{}}
for _, group in ipairs(ARGV) do busy[group] = true end
local function chosen()
  -- At most #ARGV groups can be busy, so one more is enough to meet one that is not.
  local groups = redis.call('ZRANGEBYSCORE', '{DUE}', '-inf', text(now), 'LIMIT', 0, #ARGV + 1)
  for _, group in ipairs(groups) do
    if not busy[group] then return group, redis.call('ZRANGE', '{OF_GROUP}' .. group, 0, 0)[1] end
  end
end
local group, due = chosen()
if not group then return false end
if not due then
  -- A job id, which an earlier version stored among the groups.
  redis.call('ZREM', '{DUE}', group)
  if redis.call('EXISTS', 'job:' .. group .. ':webhook') == 1 then schedule_webhook(group, text(now)) end
  return {{group, ''}}
end
local hook = redis.call('GET', 'job:' .. due .. ':webhook')
if not hook or redis.call('EXISTS', 'job:' .. due) == 0 then
  remove_webhook(due)
  return {{due, ''}}
end
schedule_webhook(due, text(now + {RESERVED_S}))
return {{due, hook, redis.call('HGET', 'job:' .. due, 'webhook'), group}}
"""
)

# job, delivery state (JSON), seconds until the next try or ''
_SETTLE = (
    WEBHOOKS
    + _CLOCK
    + """
local job = 'job:' .. ARGV[1]
if redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, 'webhook', ARGV[2])
  redis.call('PUBLISH', 'jobs:changed', ARGV[1])
end
if ARGV[3] == '' then remove_webhook(ARGV[1]) else schedule_webhook(ARGV[1], text(now + ARGV[3])) end
"""
)


@dataclass(frozen=True)
class Webhook:
    """The URL to notify of a job's end; `secret` signs the body. Its repr hides the secret."""

    url: str
    secret: str | None

    @property
    def stored(self) -> str:
        return json.dumps({"url": self.url, "secret": self.secret})

    def __repr__(self) -> str:
        return f"Webhook({self.url!r})"


@dataclass(frozen=True)
class Due:
    """A webhook to deliver now, after `attempts` earlier tries. `group` is its API key or host."""

    job_id: str
    webhook: Webhook
    attempts: int
    group: str


class Webhooks:
    """The outbox. Every method is one round trip, safe from any thread and process. Delivery is at least once."""

    def __init__(self, redis: Redis) -> None:
        self._take = redis.register_script(_TAKE)
        self._settle = redis.register_script(_SETTLE)

    def take(self, busy: Collection[str] = ()) -> Due | None:
        """The next webhook to deliver, of no `busy` group, reserved for this caller; None if none is due."""
        while (reply := self._take(args=list(busy))) is not None:
            if reply[1]:
                hook, delivery_state = json.loads(reply[1]), json.loads(reply[2] or "{}")
                webhook = Webhook(hook["url"], hook["secret"])
                return Due(text(reply[0]), webhook, int(delivery_state.get("attempts", 0)), text(reply[3]))
        return None

    def delivered(self, due: Due) -> None:
        self._note(due, "delivered", None, None)

    def failed(self, due: Due, error: str, *, final: bool = False) -> None:
        """Schedule another try after a pause; give up if `final`, or after the last try."""
        retry = not final and due.attempts < len(PAUSES_S)
        pause = PAUSES_S[due.attempts] if retry else None
        self._note(due, "pending" if retry else "failed", error, pause)

    def _note(self, due: Due, state: str, error: str | None, pause_s: int | None) -> None:
        delivery_state = {
            "state": state,
            "attempts": due.attempts + 1,
            "last_error": error[:ERROR_CHARS] if error else None,
        }
        self._settle(args=[due.job_id, json.dumps(delivery_state), "" if pause_s is None else pause_s])
