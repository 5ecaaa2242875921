"""A real worker while Redis refuses to hand out messages."""

from __future__ import annotations

from pathlib import Path

import psutil
from redis import Redis

from domain.job import Stage
from tasks.app import app
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import TASK
from tests.conftest import free_port
from tests.tasks.example_jobs import seen, until
from tests.tasks.node.test_redis_client import own_redis as own_redis
from tests.tasks.worker.test_lifecycle import HANGS, RIGHT, START_S, ended, request, start_worker


def test_a_worker_outlasts_a_redis_that_takes_no_writes(own_redis: Redis, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{own_redis.get_connection_kwargs()['port']}/0"
    records = JobStore(own_redis, ttl_s=600)

    def publish(job_id: str) -> None:
        with app.connection_for_write(url) as broker:
            app.send_task(TASK, task_id=f"{job_id}.1", queue="evaluate", connection=broker)

    process = start_worker(url, tmp_path)
    try:
        until(lambda: workers(own_redis), START_S)
        records.create("running", request(HANGS, timeout=5))
        publish("running")
        until(lambda: seen(records, "running").stage in (Stage.VALIDATE, Stage.TIME), START_S)
        own_redis.replicaof("127.0.0.1", str(free_port()))
        log = tmp_path / "worker.log"
        until(lambda: "takes no jobs until Redis takes writes" in log.read_text(), START_S)
        own_redis.replicaof("NO", "ONE")
        records.create("next", request(RIGHT))
        publish("next")
        for job_id in ("running", "next"):
            until(lambda job_id=job_id: ended(records, job_id), START_S)
            assert seen(records, job_id).attempt == 1
        assert psutil.Process(process.pid).is_running() and process.poll() is None
    finally:
        process.kill()
        process.wait()
