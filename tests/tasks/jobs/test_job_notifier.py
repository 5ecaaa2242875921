"""Waiting for jobs: woken by their moves, across a restart of Redis, with bounded places."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from redis import Redis

from tasks.jobs.job_notifier import JobNotifier
from tasks.jobs.job_store import JobStore
from tests.conftest import free_port, start_redis
from tests.tasks.example_jobs import EVALUATE

LONG_S = 30.0
"""A wait that is meant to end early."""


@pytest.fixture
def hub(redis: Redis) -> Iterator[JobNotifier]:
    hub = JobNotifier(redis, capacity=2)
    yield hub
    hub.close()


def test_watch_wakes_all_waiters_of_the_changed_job(hub: JobNotifier, redis: Redis) -> None:
    records = JobStore(redis, ttl_s=60)
    records.create("a", EVALUATE)
    with ThreadPoolExecutor(8) as pool, hub.watch("b") as other:
        entered = Barrier(9)
        waits = [pool.submit(woken, hub, "a", entered) for _ in range(8)]
        entered.wait(LONG_S)
        records.cancel("a")
        assert all(wait.result() for wait in waits)
        assert not other.is_set()


def test_watch_for_the_end_ignores_other_changes(hub: JobNotifier, redis: Redis) -> None:
    records = JobStore(redis, ttl_s=60)
    records.create("a", EVALUATE)
    with hub.watch("a") as change, hub.watch("a", end=True) as end:
        assert records.claim("w") is not None
        assert change.wait(LONG_S)
        change.clear()
        assert records.requeue("a", 1, "again")
        assert change.wait(LONG_S)
        assert not end.is_set()
        records.cancel("a")
        assert end.wait(LONG_S)
    assert not hub.watched


def test_watch_sees_a_change_before_the_wait(hub: JobNotifier, redis: Redis) -> None:
    records = JobStore(redis, ttl_s=60)
    records.create("a", EVALUATE)
    with hub.watch("a") as change:
        records.cancel("a")
        assert change.wait(LONG_S)


def test_watch_without_a_change_ends_with_its_time(hub: JobNotifier) -> None:
    with hub.watch("nobody") as change:
        assert not change.wait(0.05)
    assert not hub.watched


def test_try_enter_beyond_the_capacity_is_refused(hub: JobNotifier) -> None:
    assert hub.try_enter()
    assert hub.try_enter()
    assert not hub.try_enter()
    hub.leave()
    assert hub.try_enter()


def test_close_wakes_waiters(hub: JobNotifier) -> None:
    with ThreadPoolExecutor(1) as pool:
        entered = Barrier(2)
        wait = pool.submit(woken, hub, "a", entered)
        entered.wait(LONG_S)
        hub.close()
        assert wait.result()


def test_stopping_wakes_waiters(hub: JobNotifier) -> None:
    with ThreadPoolExecutor(2) as pool:
        entered = Barrier(3)
        waits = [pool.submit(woken, hub, job_id, entered) for job_id in ("a", "b")]
        entered.wait(LONG_S)
        hub.stopping = lambda: True
        assert all(wait.result() for wait in waits)


def test_notifier_outlives_a_restart_of_redis(tmp_path: Path) -> None:
    port = free_port()
    server = start_redis(tmp_path, port)
    with Redis(port=port) as redis:
        hub = JobNotifier(redis)
        records = JobStore(redis, ttl_s=60)
        records.create("a", EVALUATE)
        with hub.watch("a") as change:
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = start_redis(tmp_path, port)
            # Woken by the new connection, because a change may have been missed.
            assert change.wait(LONG_S)
        with hub.watch("a") as change:
            records.create("a", EVALUATE)
            records.cancel("a")
            assert change.wait(LONG_S)
        hub.close()
    stop(server)


def woken(hub: JobNotifier, job_id: str, entered: Barrier) -> bool:
    """Whether a change of the job wakes who waits for it; `entered` says when all wait."""
    with hub.watch(job_id) as change:
        entered.wait(LONG_S)
        return change.wait(LONG_S)


def stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait(timeout=10)
