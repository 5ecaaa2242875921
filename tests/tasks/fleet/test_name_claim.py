"""Two machines of one host name: the second one's workers do not start, and the first one's jobs stay his."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from redis import Redis

from tasks.fleet.heartbeat import NAMES, Heartbeat, machine, workers
from tasks.fleet.name_claim import claim
from tasks.node.device_info import CPU
from tests.tasks.example_jobs import until
from tests.tasks.worker.test_lifecycle import START_S, start_worker

NAME = "cpu0@here"
LONG_MS = 600_000
"""However long this machine does nothing for the test."""


def said(redis: Redis, name: str, for_ms: int = 2000, **more: object) -> None:
    """As somebody's heartbeat says it, who never says that he lives on this machine in between."""
    Heartbeat(redis, "another", CPU, 1, {}).beat()
    note = json.loads(redis.get("worker:another") or b"") | {"name": name} | more
    redis.set(f"worker:{name}", json.dumps(note), px=for_ms)
    redis.sadd(NAMES, name)
    redis.delete("worker:another")


@contextmanager
def living_elsewhere(redis: Redis, name: str) -> Iterator[None]:
    """A worker of that name on another machine."""
    over = Event()

    def beat() -> None:
        for number in count(1):
            said(redis, name, LONG_MS, machine="elsewhere/1", seen_at=number)
            if over.wait(0.05):
                return

    said(redis, name, LONG_MS, machine="elsewhere/1", seen_at=0)
    thread = Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_who_lives_elsewhere_keeps_his_name(redis: Redis) -> None:
    with living_elsewhere(redis, NAME), pytest.raises(SystemExit, match="give each node a host name of its own"):
        claim(redis, NAME)


def test_a_name_is_free_when_nobody_says_so_any_more(redis: Redis) -> None:
    said(redis, NAME, machine="elsewhere/1")
    claim(redis, NAME)
    assert redis.get(f"worker:{NAME}") is None


@pytest.mark.parametrize("more", [{}, {"machine": None}])
def test_who_begins_anew_here_does_not_wait(redis: Redis, more: dict[str, object]) -> None:
    assert machine() is not None
    said(redis, NAME, **more)
    claim(redis, NAME)
    assert redis.get(f"worker:{NAME}") is not None


def test_a_real_worker_does_not_start_under_a_name_that_lives_elsewhere(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    name = f"cpu0@{socket.gethostname()}"
    with living_elsewhere(redis, name):
        process = start_worker(redis_url, tmp_path)
        try:
            until(lambda: process.poll() is not None, START_S)
        finally:
            process.kill()
            process.wait()
    assert process.returncode != 0
    assert f"a worker {name} runs on another machine already" in (tmp_path / "worker.log").read_text()
    assert [worker.name for worker in workers(redis)] == [name]  # Nobody beats now, whose notes pass by a second name.
