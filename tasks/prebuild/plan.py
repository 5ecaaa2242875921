"""The plan of a build-only worker: the builds that queued jobs need, in the order in which the jobs start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redis import Redis

from domain.kernel import Kernel
from domain.request import Request
from tasks.fleet.heartbeat import WorkerView
from tasks.jobs.job_queue import COMMON, JobQueue, queue_of_gpu, queue_of_worker, read_request

MAX_JOBS_PER_QUEUE = 64
"""Maximum number of jobs per queue to build for in advance; the builds may not be needed for a while."""


@dataclass(frozen=True)
class PlannedBuild:
    """A build that a queued job needs: the index of its kernel, the architecture, and the build's key."""

    job_id: str
    kernel: int
    arch: str
    key: str


class BuildPlan:
    """Plans builds. `key` returns the build key of a kernel for an architecture, None if this node cannot build it.

    The request of a job is read once, while the job is among the first of a queue.
    """

    def __init__(self, redis: Redis, queue: JobQueue, key: Callable[[Kernel, str], str | None]) -> None:
        self._redis = redis
        self._queue = queue
        self._key = key
        self._keys: dict[tuple[str, str], list[str | None]] = {}

    def builds(self, archs: Iterable[str], judges: Iterable[WorkerView]) -> list[PlannedBuild]:
        """Builds for the first jobs of the queues of workers with one of those architectures. Raises RedisError."""
        served = _served(set(archs), list(judges))
        heads = self._queue.peek(list(served), MAX_JOBS_PER_QUEUE)
        near = [(job_id, arch) for queue, job_id in heads for arch in sorted(served[queue])]
        self._keys = {pair: self._keys[pair] for pair in near if pair in self._keys}
        return [
            PlannedBuild(job_id, kernel, arch, key)
            for job_id, arch in near
            for kernel, key in enumerate(self._keys_of(job_id, arch))
            if key is not None
        ]

    def gone(self, one: PlannedBuild, archs: Iterable[str], judges: Iterable[WorkerView]) -> bool:
        """Whether the job has ended, and no other job of the plan needs the same build. Raises RedisError."""
        if self._redis.exists(f"job:{one.job_id}:request"):
            return False
        return all(other.key != one.key for other in self.builds(archs, judges))

    def request(self, job_id: str) -> Request | None:
        """The stored request; None if it is gone or unreadable, which the worker that starts the job reports."""
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
    """The kernels of a request, in build order."""
    return list(request.kernels.values())


def _served(archs: set[str], judges: list[WorkerView]) -> dict[str, set[str]]:
    """The queues that may have jobs for those architectures, and which: a model's or worker's queue has only one."""
    served = {COMMON: archs}
    for judge in judges:
        if judge.arch in archs:
            served[queue_of_worker(judge.name)] = {judge.arch}
            if judge.gpu_model is not None:
                served[queue_of_gpu(judge.gpu_model)] = {judge.arch}
    return served
