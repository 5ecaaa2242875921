"""Trace entries in Redis: job transitions and the API add them, workers export them.

Adding an entry is one short write, so no exporter, thread or endpoint delays a request or a job. While no worker
exports traces (`want`), transitions write no entries. Above WAITING entries the oldest are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from redis import Redis

DUE = "traces:due"
EXPORT_ENABLED = "traces:wanted"
"""`tasks/jobs/job_script_functions.py` uses both names too."""

EXPORT_ENABLED_S = 60
WAITING = 10_000

Entry = dict[str, Any]
"""`{"job": id}` for a job that ended; `{"post": …}` for a submission, as `api/http/request_span.py` writes it."""


def put(redis: Redis, entries: Sequence[Entry]) -> None:
    """Add at least one entry; one round trip."""
    with redis.pipeline(transaction=False) as pipe:
        pipe.rpush(DUE, *map(json.dumps, entries))
        pipe.ltrim(DUE, -WAITING, -1)
        pipe.execute()


def want(redis: Redis) -> None:
    """Ask the transitions of jobs to write entries for the next EXPORT_ENABLED_S seconds."""
    redis.set(EXPORT_ENABLED, 1, ex=EXPORT_ENABLED_S)


def take(redis: Redis, limit: int) -> list[Entry]:
    """Remove and return the oldest `limit` entries."""
    entries = cast("list[bytes] | None", redis.lpop(DUE, limit))
    return [json.loads(entry) for entry in entries or ()]
