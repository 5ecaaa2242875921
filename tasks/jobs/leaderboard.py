"""The fastest candidates of each reference: a short list in Redis, kept by the move that completes a job.

Of jobs that passed with a speed-up, on inputs that nobody knew beforehand. A list is one API key's (or of those without
one), of one reference and one kind of device; it has each candidate once, by its latest measurement, since the best of
many would be the luckiest. Lists and their number are bounded, and gone when their jobs are.

Keys: `board:<key or nothing>:<board>`, candidates by speed-up; `…:jobs`, the job of each; `boards:<key or nothing>`,
boards by the time of their last change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from redis import Redis

from domain.result import Status, first_line
from tasks.jobs.job_view import text

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
    """What is said of a completed job in a list. `kernel` is the entry that was called; digests as in the result.

    `relative_ci` is that of the time; `error` the first line of why the kernel did not pass, None where it did.
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
    def of(cls, body: dict[str, Any]) -> Summary:
        """Of a completed job's HTTP body."""
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
    def read(cls, stored: bytes | str) -> Summary:
        """Of this version's, of one before or of one after."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in json.loads(stored).items() if name in known})

    @property
    def board(self) -> str:
        """The board on which the job belongs; empty where it belongs on none."""
        measured = self.verdict == Status.PASSED and self.ratio is not None and self.ci_high is not None
        known = bool(self.reference and self.candidate)
        return f"{self.device}:{self.reference}" if measured and known and not self.inputs_replayed else ""


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


def boards(redis: Redis, key_id: str | None, most: int) -> list[Board]:
    """The boards that changed last, at most so many, of the jobs that are still kept. Two round trips for each."""
    owner = key_id or ""
    names = [text(name) for name in redis.zrevrange(f"boards:{owner}", 0, most - 1)]
    found = (_board(redis, owner, name) for name in names)
    return [board for board in found if board.leaders]


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
    leaders = [Leader(job_id, Summary.read(one)) for job_id, one in zip(ids, summaries, strict=True) if one is not None]
    return Board(reference, device, leaders)
