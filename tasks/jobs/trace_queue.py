"""What is to be told in traces, in Redis: the moves of records and the API put it there, workers send it on.

Whoever answers or judges writes one short entry and is done: no exporter, no thread and no endpoint is in its way.
While no worker sends traces (`want`) records write none, and when more wait than WAITING the oldest go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from redis import Redis

DUE = "traces:due"
WANTED = "traces:wanted"
"""Both are also in `tasks/jobs/job_lua_lib.py`."""

WANTED_S = 60
WAITING = 10_000

Entry = dict[str, Any]
"""`{"job": id}` for one that has ended; `{"post": …}`, as `api/http/request_span.py` writes it, for one that was handed
in."""


def put(redis: Redis, entries: Sequence[Entry]) -> None:
    """More of them, at least one; one round trip."""
    with redis.pipeline(transaction=False) as pipe:
        pipe.rpush(DUE, *map(json.dumps, entries))
        pipe.ltrim(DUE, -WAITING, -1)
        pipe.execute()


def want(redis: Redis) -> None:
    """For WANTED_S from now on the moves of records write entries."""
    redis.set(WANTED, 1, ex=WANTED_S)


def take(redis: Redis, most: int) -> list[Entry]:
    """The oldest, which nobody else gets."""
    taken = cast("list[bytes] | None", redis.lpop(DUE, most))
    return [json.loads(entry) for entry in taken or ()]
