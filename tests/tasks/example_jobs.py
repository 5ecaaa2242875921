"""What the tests of jobs share: requests, answers, waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from redis import Redis

from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Report, Status
from tasks.jobs.admission import Accepted
from tasks.jobs.job_queue import COMMON, queue_of_worker
from tasks.jobs.job_store import JobStore, JobView
from tasks.jobs.submit import publish_again
from tasks.node.redis_client import text

EVALUATE = Request(kernel=Kernel("class Model: ...", KernelType.TORCH), timeout=30)
COMPARE = Request(kernel=Kernel("__global__", KernelType.CUDA), reference=Kernel("class Model: ...", KernelType.TORCH))

RELU = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(8)]
"""
"""A source that is built, judged and right."""


def report(status: Status = Status.PASSED) -> Report:
    return Report(Outcome(status, "torch", compiled=status is not Status.COMPILE_ERROR), environment={"host": "here"})


def seen(records: JobStore, job_id: str) -> JobView:
    view = records.get(job_id)
    assert view is not None
    return view


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as that holds; AssertionError when it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@contextmanager
def acting_once(ready: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """Acts in a thread as soon as `ready` holds, beside the block; raises what it raised at the end of the block."""
    with ThreadPoolExecutor(1) as pool:
        acted = pool.submit(lambda: (until(ready), act()))
        yield
        acted.result()


def give_to(redis: Redis, records: JobStore, worker: str, job_id: str, request: Request) -> None:
    """A job whose first attempt is that worker's: it stands in his own line as if others had failed it."""
    assert isinstance(records.create(job_id, request), Accepted)
    own, key = queue_of_worker(worker), f"job:{job_id}"
    place = text(redis.hget(key, "place"))
    with redis.pipeline() as pipe:
        for common in (f"jobs:line:{COMMON}", f"jobs:line:{COMMON}:age"):
            pipe.zrem(common, place)
        pipe.zadd(f"jobs:line:{own}", {place: 0})
        pipe.zadd(f"jobs:line:{own}:age", {place: seen(records, job_id).submitted_at})
        pipe.sadd("jobs:lines", own)
        pipe.hset(key, "line", own)
        pipe.execute()
    assert publish_again(own, job_id, 1)
