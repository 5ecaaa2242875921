"""The lines of queued jobs and the Celery queues of the same names, whose messages only say that there is a job.

A message is no job's own: who gets one begins the first job of all lines that he serves. So none may lack, while one
too many does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from redis import Redis

from domain.request import Request
from tasks.jobs import queue_lua
from tasks.jobs.job_view import text
from tasks.jobs.queue_lua_lib import COMMON

__all__ = ["COMMON", "Claim", "Line", "Lines", "Message", "line_of_gpu", "line_of_worker"]

LONG_S = 600.0
"""Whoever has waited longer is not passed over for ever, whatever his priority and share:"""
EVERY = 4
"""one of so many jobs that begin is then the one that has waited longest."""

TRIES = 100
"""So many jobs whose time to be begun is over are ended by one claim; the rest by the reconciler."""


@dataclass(frozen=True)
class Message:
    """A Celery message that a worker has received: its task id and the queue that it came from."""

    id: str
    queue: str = COMMON


@dataclass(frozen=True)
class Claim:
    """The right to run one attempt of a job; every move names the attempt, so a stale owner moves nothing.

    `lacking` is a queue whose line has a job without a message now: whoever claims sends it one.
    """

    job_id: str
    attempt: int
    request: Request
    lacking: str | None = None


@dataclass(frozen=True)
class Line:
    """A line that has jobs, and the messages in its queue."""

    name: str
    jobs: int
    messages: int

    @property
    def worker(self) -> str | None:
        """Whose line it is; None for one of several workers."""
        own = self.name.removeprefix(f"{COMMON}.")
        return own if own != self.name and not own.startswith("gpu.") else None


class Unreadable(ValueError):
    """The stored request of a claimed job cannot be read: `job_id`, `attempt`."""

    def __init__(self, job_id: str, attempt: int, why: Exception) -> None:
        super().__init__(f"the stored request cannot be read ({why}); submit the job again")
        self.job_id = job_id
        self.attempt = attempt


class Lines:
    """Where queued jobs stand. Every method is one round trip, safe from any thread and process."""

    def __init__(self, redis: Redis, ttl_s: int) -> None:
        self._redis = redis
        self._ttl_s = ttl_s
        self._claim = redis.register_script(queue_lua.CLAIM)
        self._move = redis.register_script(queue_lua.MOVE)
        self._count = redis.register_script(queue_lua.COUNT)
        self._forget_shares = redis.register_script(queue_lua.FORGET_SHARES)

    def claim(self, worker: str, gpu: str, message: Message | None, owner_ttl_s: int) -> Claim | None:
        """Begin the first job of the lines that this worker serves; None where there is none.

        None also for a message under which a job runs already: it was delivered twice. Raises Unreadable.
        """
        name, queue = (message.id, message.queue) if message is not None else ("", COMMON)
        claimed = self._claim(args=["", worker, gpu, name, queue, owner_ttl_s, self._ttl_s, LONG_S, EVERY, TRIES])
        if claimed is None:
            return None
        job_id, attempt, stored, lacking = text(claimed[0]), int(claimed[1]), claimed[2], text(claimed[3])
        try:
            return Claim(job_id, attempt, read_request(stored), lacking or None)
        except ValueError as error:
            raise Unreadable(job_id, attempt, error) from error

    def running_under(self, message_id: str) -> tuple[str, int] | None:
        """The job and the attempt that run under this message; None where none does."""
        found = self._redis.hget("jobs:messages", message_id)
        if found is None:
            return None
        job_id, _, attempt = text(found).rpartition(" ")
        return job_id, int(attempt)

    def move(self, job_id: str) -> str | None:
        """Have a queued job stand in the line that is right for it now; which, or None where it is not queued."""
        line = self._move(args=[job_id])
        return None if line is None else text(line)

    def all(self) -> list[Line]:
        """Those that have jobs."""
        return [Line(text(name), int(jobs), int(messages)) for name, jobs, messages in self._count(args=[""])]

    def jobs(self, line: str, limit: int) -> list[str]:
        """The first jobs of a line, in order."""
        places = self._redis.zrange(f"jobs:line:{line}", 0, limit - 1)
        return [job_of(text(place)) for place in places]

    def ahead(self, lines: Sequence[str], limit: int) -> list[tuple[str, str]]:
        """The first jobs of each of those lines, in the order of all: its line and its id."""
        with self._redis.pipeline(transaction=False) as pipe:
            for line in lines:
                pipe.zrange(f"jobs:line:{line}", 0, limit - 1)
            found = pipe.execute()
        places = sorted((text(place), line) for line, first in zip(lines, found, strict=True) for place in first)
        return [(line, job_of(place)) for place, line in places]

    def forget_shares(self) -> None:
        """Drop what says nothing about the order any more."""
        self._forget_shares(args=[""])


def read_request(stored: bytes | str) -> Request:
    """A job's request as it is stored; raises ValueError for what is none."""
    try:
        return Request.from_wire(json.loads(stored))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(repr(error)) from error


def job_of(place: str) -> str:
    """Whose place it is."""
    return place.split(":", 4)[4]


def line_of_worker(worker: str) -> str:
    """The line that this worker alone serves."""
    return f"{COMMON}.{worker}"


def line_of_gpu(model: str | None) -> str:
    """The line of jobs that ask for that model; the common one for those that ask for none."""
    return COMMON if model is None else f"{COMMON}.gpu.{model}"
