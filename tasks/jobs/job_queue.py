"""The queues of jobs, and the Celery queues of the same names, whose messages only say that a job is waiting.

A message does not belong to a job: the worker that receives it starts the first job of all queues that it serves. A
missing message would leave a job waiting; a surplus message does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from redis import Redis

from domain.job import State
from domain.request import Request
from tasks.jobs.job_scripts import transition
from tasks.node.redis_client import text

COMMON = "evaluate"
"""The queue that every worker serves."""

LONG_WAIT_S = 600.0
"""Waiting time above which a job may start regardless of its priority and share, in s (docs/adr/0005)."""
LONG_WAIT_EVERY = 4
"""One of this many started jobs is then the job that has waited longest."""

ALONE_S = 600
"""Seconds after which a job in its last attempt no longer holds up the others that paused before theirs."""

MAX_PAUSED = 500
"""Maximum number of paused jobs that are looked at for the next one, other ones each time."""

MAX_EXPIRED_PER_CLAIM = 100
"""Maximum number of jobs past their queue timeout that one claim ends; the reconciler ends the rest."""


@dataclass(frozen=True)
class Message:
    """A Celery message that a worker received: its task id and the Celery queue it came from."""

    id: str
    queue: str = COMMON


@dataclass(frozen=True)
class Claim:
    """The right to run one attempt of a job. Every transition names the attempt, so a stale owner changes nothing.

    `keeps_request`: the request stays with a completed job, as the API decided by its KEEP_SOURCES.
    `queue_to_wake` names a queue that now has fewer messages than jobs; the claiming worker publishes one to it.
    """

    job_id: str
    attempt: int
    request: Request
    queue_to_wake: str | None = None
    keeps_request: bool = True

    @classmethod
    def from_reply(cls, reply: Sequence[Any]) -> Self:
        """Parse the reply of `lua/claim_job.lua`; raises UnreadableRequest."""
        job_id, attempt = text(reply[0]), int(reply[1])
        try:
            request = replace(read_request(reply[2]), owner=text(reply[4]) or None)
            return cls(job_id, attempt, request, text(reply[3]) or None, bool(reply[5]))
        except ValueError as error:
            raise UnreadableRequest(job_id, attempt, error) from error


@dataclass(frozen=True)
class QueueStats:
    """A queue that has jobs, and the number of messages in the Celery queue of the same name."""

    name: str
    jobs: int
    messages: int

    @classmethod
    def from_reply(cls, reply: Sequence[Any]) -> Self:
        """Parse one entry of the reply of `lua/count_queues.lua`."""
        return cls(text(reply[0]), int(reply[1]), int(reply[2]))

    @property
    def worker(self) -> str | None:
        """The worker that alone serves this queue; None if several workers may serve it."""
        worker = self.name.removeprefix(f"{COMMON}.")
        return worker if worker != self.name and not worker.startswith("gpu.") else None


class UnreadableRequest(ValueError):
    """The stored request of the claimed job `job_id`, attempt `attempt`, cannot be parsed."""

    def __init__(self, job_id: str, attempt: int, why: Exception) -> None:
        super().__init__(f"the stored request cannot be read ({why}); submit the job again")
        self.job_id = job_id
        self.attempt = attempt


class JobQueue:
    """All queues of jobs in Redis. Every method is one round trip, safe from any thread and process."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._claim = transition(redis, "claim_job")
        self._move = transition(redis, "move_job")
        self._count = transition(redis, "count_queues")
        self._drop_shares = transition(redis, "drop_shares")
        self._stranded = transition(redis, "find_stranded")
        self._end_pause = transition(redis, "end_pause")

    def claim(self, worker: str, gpu: str, message: Message | None, owner_ttl_s: int) -> Claim | None:
        """Start the first job of the queues that this worker serves; None if they are empty.

        None also if a job already runs under this message, which Redis delivered twice. Raises UnreadableRequest.
        """
        argument = {
            "worker": worker,
            "gpu": gpu,
            "message": message.id if message else None,
            "queue": message.queue if message else COMMON,
            "owner_ttl": owner_ttl_s,
            "long_wait": LONG_WAIT_S,
            "long_wait_every": LONG_WAIT_EVERY,
            "tries": MAX_EXPIRED_PER_CLAIM,
        }
        reply = self._claim(argument)
        return None if reply is None else Claim.from_reply(reply)

    def running_under(self, message_id: str) -> tuple[str, int] | None:
        """The id and the attempt of the job that runs under this message; None if there is none."""
        stored = self._redis.hget("jobs:messages", message_id)
        if stored is None:
            return None
        job_id, _, attempt = text(stored).rpartition(" ")
        return job_id, int(attempt)

    def move(self, job_id: str) -> str | None:
        """Move a queued job to the queue that suits it now, and return that queue; None if the job is not queued."""
        queue = self._move({"id": job_id})
        return None if queue is None else text(queue)

    def stranded(self, limit: int) -> list[str]:
        """Queued jobs whose place in a queue was lost: `move` gives them another."""
        return [text(job_id) for job_id in self._stranded({"limit": limit})]

    def end_pause(self) -> tuple[str, str] | None:
        """Let one job that paused before its last attempt enter a queue, once the one before has ended: both, or None.

        The caller sends the queue a message.
        """
        reply = self._end_pause({"limit": MAX_PAUSED, "alone": ALONE_S})
        return None if reply is None else (text(reply[0]), text(reply[1]))

    def all(self) -> list[QueueStats]:
        return [QueueStats.from_reply(entry) for entry in self._count({})]

    def jobs(self, queue: str, limit: int) -> list[str]:
        """The ids of the first jobs of a queue, in order."""
        queue_keys = self._redis.zrange(f"jobs:line:{queue}", 0, limit - 1)
        return [job_of(text(queue_key)) for queue_key in queue_keys]

    def messages(self, queue: str) -> int:
        return int(self._redis.llen(queue))

    def request(self, job_id: str) -> Request | None:
        """The request of a job that has not ended; None if it has, or is unknown. ValueError if it is unreadable."""
        with self._redis.pipeline() as pipe:
            pipe.get(f"job:{job_id}:request")
            pipe.hget(f"job:{job_id}", "state")
            stored, state = pipe.execute()
        # A failed or cancelled job keeps its request, for its owner.
        ended = state is not None and State(text(state)).terminal
        return read_request(stored) if stored is not None and not ended else None

    def drop_shares(self) -> None:
        """Remove fair shares that no longer influence the order."""
        self._drop_shares({})


def read_request(stored: bytes | str) -> Request:
    """Parse a stored request; raises ValueError if that fails."""
    try:
        return Request.from_wire(json.loads(stored))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(repr(error)) from error


def job_of(place: str) -> str:
    """The job id at the end of a job's place in a queue."""
    return place.split(":", 4)[4]


def queue_of_worker(worker: str) -> str:
    return f"{COMMON}.{worker}"


def queue_of_gpu(model: str | None) -> str:
    """The queue of jobs that ask for this GPU model; the common queue for None."""
    return COMMON if model is None else f"{COMMON}.gpu.{model}"
