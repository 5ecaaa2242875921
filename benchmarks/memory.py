"""`python -m benchmarks.memory`: the memory of many jobs in Redis: queued, completed and expired."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from redis import Redis
from rich.table import Table

from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Report, Status
from stack.child import Child
from stack.redis_server import RedisServer
from stack.terminal import Terminal
from tasks.app import app
from tasks.jobs.admission import NewJob
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import submit_many

JOBS = 20_000
PIECE = 500
SOURCE_BYTES = 1024
RESULT_BYTES = 4096


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kernel-eval-") as folder:
        server = RedisServer.on_free_port(Path(folder) / "redis")
        child = Child.start(server.program(dict(os.environ)))  # noqa: TID251 - handed on
        try:
            while not server.answers():
                pass
            with Redis.from_url(server.url) as redis:
                _measure(redis, server.url)
        finally:
            child.kill()
            child.close()
    return 0


def _measure(redis: Redis, url: str) -> None:
    app.conf.broker_url = app.conf.broker_write_url = url
    records = JobStore(redis, ttl_s=86_400)
    request = Request(kernel=Kernel("#" * SOURCE_BYTES, KernelType.TORCH))
    report = Report(Outcome(Status.PASSED, "torch", compiled=True, output="#" * RESULT_BYTES), environment={})
    table = Table(f"{JOBS} jobs, sources of {SOURCE_BYTES} B, results of {RESULT_BYTES} B and more", "bytes a job")
    empty = _used(redis)
    for begin in range(0, JOBS, PIECE):
        submit_many(records, [NewJob(f"{number:036d}", request) for number in range(begin, begin + PIECE)])
    table.add_row("queued, with its message", _each(redis, empty))
    table.add_row("what RECORDS_MEMORY_MIB counts of it", f"{records.stored_bytes() / JOBS:.0f}")
    if redis.llen(app.conf.task_default_queue) != JOBS:
        raise RuntimeError("not every message was published")
    redis.delete(app.conf.task_default_queue)
    table.add_row("queued, without its message", _each(redis, empty))
    for number in range(JOBS):
        claim = records.claim("gpu0@node")
        if claim is None or not records.complete(f"{number:036d}", claim.attempt, report.body(f"{number:036d}")):
            raise RuntimeError(f"job {number} did not complete")
    table.add_row("completed", _each(redis, empty))
    table.add_row("what RECORDS_MEMORY_MIB counts of it", f"{records.stored_bytes() / JOBS:.0f}")
    records.cleanup(records.now() + 1)
    table.add_row("forgotten", _each(redis, empty))
    Terminal().print(table)


def _used(redis: Redis) -> int:
    info: dict[str, Any] = redis.info("memory")
    return int(info["used_memory"])


def _each(redis: Redis, empty: int) -> str:
    return f"{(_used(redis) - empty) / JOBS:.0f}"


if __name__ == "__main__":
    sys.exit(main())
