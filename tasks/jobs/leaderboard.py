"""The fastest candidates of each reference: short lists in Redis that the completion of a job updates.

Only jobs that passed with a speed-up count, and only if nobody knew their inputs beforehand. A board belongs to one API
key (or to the jobs without a key), one reference and one device model. It holds each candidate once, by its latest
measurement: the best of many measurements would be the luckiest one. The number of boards and their length are bounded.
They expire with their jobs.

Keys: `board:<key or nothing>:<board>`, candidates by speed-up; `…:jobs`, the job of each; `boards:<key or nothing>`,
boards by the time of their last change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from redis import Redis

from domain.result import Status, first_line
from tasks.node.redis_client import text

LENGTH = 10
BOARDS = 50

# board, candidate, speed-up, ttl
RANK = f"""
local function rank(board, candidate, speedup, ttl)
  local owner = get('key_id')
  local list, boards = 'board:' .. owner .. ':' .. board, 'boards:' .. owner
  local jobs = list .. ':jobs'
  local function drop(each)
    redis.call('ZREM', list, each)
    redis.call('HDEL', jobs, each)
  end
  redis.call('ZADD', list, speedup, candidate)
  redis.call('HSET', jobs, candidate, id)
  for _, each in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    if redis.call('EXISTS', 'job:' .. redis.call('HGET', jobs, each)) == 0 then drop(each) end
  end
  for _, each in ipairs(redis.call('ZREVRANGE', list, {LENGTH}, -1)) do drop(each) end
  redis.call('ZADD', boards, text(now), board)
  redis.call('ZREMRANGEBYRANK', boards, 0, -{BOARDS + 1})
  for _, key in ipairs({{list, jobs, boards}}) do redis.call('EXPIRE', key, ttl) end
end
"""


@dataclass(frozen=True)
class Summary:
    """Summary of a completed job for lists. `kernel` is the name of its entry point; digests as in the result.

    `relative_ci` is the relative confidence interval of the time; `error` is the first line of the failure, or None.
    """

    verdict: str
    kernel: str | None
    device: str | None
    latency_ms: float | None
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    flag_count: int
    candidate: str | None
    reference: str | None
    inputs_replayed: bool = False
    relative_ci: float | None = None
    error: str | None = None

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Summary:
        """The summary of a completed job's HTTP body."""
        kernel, environment = body["kernel_exec_result"], body.get("environment") or {}
        metadata, timing, speedup = kernel.get("metadata") or {}, kernel.get("timing") or {}, body.get("speedup") or {}
        reference = (body.get("ref_result") or {}).get("metadata") or {}
        return cls(
            verdict=body["verdict"],
            kernel=metadata.get("kernel_name"),
            device=environment.get("gpu_name") or environment.get("device"),
            latency_ms=timing.get("latency_ms"),
            ratio=speedup.get("ratio"),
            ci_low=speedup.get("ci_low"),
            ci_high=speedup.get("ci_high"),
            flag_count=len(timing.get("flags") or ()),
            candidate=metadata.get("digest"),
            reference=reference.get("digest"),
            inputs_replayed=bool((kernel.get("inputs") or {}).get("inputs_replayed")),
            relative_ci=timing.get("relative_ci"),
            error=first_line(kernel.get("compilation_error") or kernel.get("validation_error")) or None,
        )

    @classmethod
    def from_json(cls, stored: bytes | str) -> Summary:
        """Parse a stored summary, also of an older or newer version of this class."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(stored).items() if name in names})

    @property
    def board(self) -> str:
        """The board that the job belongs to; empty if it belongs to none."""
        measured = self.verdict == Status.PASSED and self.ratio is not None and self.ci_high is not None
        has_digests = bool(self.reference and self.candidate)
        return f"{self.device}:{self.reference}" if measured and has_digests and not self.inputs_replayed else ""


@dataclass(frozen=True)
class Leader:
    """A candidate on a board."""

    job_id: str
    summary: Summary


@dataclass(frozen=True)
class Board:
    """The fastest candidates of a reference (its digest) on a kind of device, the fastest first."""

    reference: str
    device: str
    leaders: list[Leader]


def boards(redis: Redis, key_id: str | None, limit: int) -> list[Board]:
    """At most `limit` boards of an API key, latest change first, without expired jobs. Two round trips per board."""
    owner = key_id or ""
    names = [text(name) for name in redis.zrevrange(f"boards:{owner}", 0, limit - 1)]
    summaries = (_board(redis, owner, name) for name in names)
    return [board for board in summaries if board.leaders]


def _board(redis: Redis, owner: str, name: str) -> Board:
    key = f"board:{owner}:{name}"
    with redis.pipeline(transaction=False) as pipe:
        pipe.zrevrange(key, 0, LENGTH - 1)
        pipe.hgetall(f"{key}:jobs")
        candidates, jobs = pipe.execute()
    job_of = {text(candidate): text(job_id) for candidate, job_id in jobs.items()}
    ids = [job_of[candidate] for candidate in map(text, candidates) if candidate in job_of]
    with redis.pipeline(transaction=False) as pipe:
        for job_id in ids:
            pipe.hget(f"job:{job_id}", "summary")
        summaries = pipe.execute()
    device, _, reference = name.rpartition(":")
    leaders = [
        Leader(job_id, Summary.from_json(one)) for job_id, one in zip(ids, summaries, strict=True) if one is not None
    ]
    return Board(reference, device, leaders)
