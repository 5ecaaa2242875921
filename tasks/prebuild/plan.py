"""Which builds the queued jobs will want, in the order in which the jobs will be begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redis import Redis

from domain.kernel import Kernel
from domain.request import Request
from tasks.fleet.heartbeat import WorkerView
from tasks.jobs.job_queue import COMMON, JobQueue, queue_of_gpu, queue_of_worker, read_request

AHEAD = 64
"""Jobs of a line: so many builds at most are made that nobody may want for a while."""


@dataclass(frozen=True)
class Wanted:
    """A build that a queued job will want: of which of its kernels, for which architecture, by which key."""

    job_id: str
    kernel: int
    arch: str
    key: str


class LookAhead:
    """`key` names the build of a kernel for an architecture, None where that is left to others.

    Every request is read once while its job is near.
    """

    def __init__(self, redis: Redis, queue: JobQueue, key: Callable[[Kernel, str], str | None]) -> None:
        self._redis = redis
        self._queue = queue
        self._key = key
        self._keys: dict[tuple[str, str], list[str | None]] = {}

    def wanted(self, archs: Iterable[str], judges: Iterable[WorkerView]) -> list[Wanted]:
        """By the first jobs of the lines that somebody serves with one of those architectures. Raises RedisError."""
        served = _served(set(archs), list(judges))
        heads = self._queue.peek(list(served), AHEAD)
        near = [(job_id, arch) for line, job_id in heads for arch in sorted(served[line])]
        self._keys = {each: self._keys[each] for each in near if each in self._keys}
        return [
            Wanted(job_id, kernel, arch, key)
            for job_id, arch in near
            for kernel, key in enumerate(self._keys_of(job_id, arch))
            if key is not None
        ]

    def gone(self, one: Wanted, archs: Iterable[str], judges: Iterable[WorkerView]) -> bool:
        """Whether its job has ended, and no other one that is near will want the same. Raises RedisError."""
        if self._redis.exists(f"job:{one.job_id}:request"):
            return False
        return all(other.key != one.key for other in self.wanted(archs, judges))

    def request(self, job_id: str) -> Request | None:
        """None where it is no longer kept, or cannot be read: whoever begins the job says so."""
        stored = self._redis.get(f"job:{job_id}:request")
        try:
            return read_request(stored) if stored is not None else None
        except ValueError:
            return None

    def _keys_of(self, job_id: str, arch: str) -> list[str | None]:
        if (job_id, arch) not in self._keys:
            request = self.request(job_id)
            kernels = kernels_of(request) if request is not None else []
            self._keys[job_id, arch] = [self._key(kernel, arch) for kernel in kernels]
        return self._keys[job_id, arch]


def kernels_of(request: Request) -> list[Kernel]:
    """In the order in which they are built."""
    return list(request.kernels.values())


def _served(archs: set[str], judges: list[WorkerView]) -> dict[str, set[str]]:
    """The lines that may have jobs for those architectures, and which: a model's and a worker's own are of one."""
    served = {COMMON: archs}
    for judge in judges:
        if judge.arch in archs:
            served[queue_of_worker(judge.name)] = {judge.arch}
            if judge.gpu_model is not None:
                served[queue_of_gpu(judge.gpu_model)] = {judge.arch}
    return served
