"""Outbox of webhooks in Redis: which clients must be notified of a job's end. A restart loses none.

Keys: `job:<id>:webhook` has URL and secret as JSON; it is recorded with the job and deleted when the webhook was
delivered or given up. Due webhooks are in groups, because the receivers of one group may be slow. A group is an API
key, or a host for jobs without a key. `webhooks:due:<group>` has the jobs of a group and `webhooks:due` the groups,
both by the time of the next try. `webhooks:group_of` has the group of each job. `finish` in `lua/shared/job_end.lua`,
the end of every job, adds to them. The job's record has the delivery state, without the secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from redis import Redis

from tasks.jobs.job_scripts import LUA, SHARED
from tasks.jobs.job_view import Delivery
from tasks.node.lua_script import LuaScript
from tasks.node.redis_client import text

RESERVED_S = 60
"""Seconds after which a sender that reported no outcome of a try counts as dead."""
PAUSES_S = (10, 60, 300, 1800, 7200)
"""Pauses between the tries of a delivery, in s."""
ERROR_CHARS = 300

_FUNCTIONS = (SHARED / "argument.lua", SHARED / "webhooks.lua")


@dataclass(frozen=True)
class Webhook:
    """The URL to notify of a job's end; `secret` signs the body. Its repr hides the secret."""

    url: str
    secret: str | None

    @property
    def stored(self) -> str:
        return json.dumps(asdict(self))

    def __repr__(self) -> str:
        return f"Webhook({self.url!r})"


@dataclass(frozen=True)
class Due:
    """A webhook to deliver now, after `attempts` earlier tries. `group` is its API key or host."""

    job_id: str
    webhook: Webhook
    attempts: int
    group: str

    @classmethod
    def from_reply(cls, reply: Sequence[Any]) -> Self:
        """Parse the reply of `lua/take_webhook.lua` about a webhook that is kept."""
        delivery = Delivery.from_wire(json.loads(reply[2]))
        return cls(text(reply[0]), Webhook(**json.loads(reply[1])), delivery.attempts, text(reply[3]))


class Webhooks:
    """The outbox. Every method is one round trip, safe from any thread and process. Delivery is at least once."""

    def __init__(self, redis: Redis) -> None:
        self._take = LuaScript(redis, *_FUNCTIONS, LUA / "take_webhook.lua")
        self._settle = LuaScript(redis, *_FUNCTIONS, LUA / "settle_webhook.lua")

    def take(self, busy: Collection[str] = ()) -> Due | None:
        """The next webhook to deliver, of no `busy` group, reserved for this caller; None if none is due."""
        while (reply := self._take({"busy": list(busy), "reserved": RESERVED_S})) is not None:
            if reply[1]:
                return Due.from_reply(reply)
        return None

    def delivered(self, due: Due) -> None:
        self._note(due, "delivered", None, None)

    def failed(self, due: Due, error: str, *, final: bool = False) -> None:
        """Schedule another try after a pause; give up if `final`, or after the last try."""
        retry = not final and due.attempts < len(PAUSES_S)
        pause = PAUSES_S[due.attempts] if retry else None
        self._note(due, "pending" if retry else "failed", error, pause)

    def _note(self, due: Due, state: str, error: str | None, pause_s: int | None) -> None:
        delivery = Delivery(state, due.attempts + 1, error[:ERROR_CHARS] if error else None)
        self._settle({"id": due.job_id, "delivery": json.dumps(asdict(delivery)), "pause": pause_s})
