"""Shared fixtures: a real valkey server for the session, and a flushed database for each test that asks for one."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from domain.settings import settings
from stack.devices import Gpu, chosen, installed
from stack.redis_server import binary
from tasks.jobs import job_store
from tasks.node.device_info import detect
from tests.durations import is_long
from tests.tasks.broker import published_to

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
START_S = 10.0


def cards() -> list[Gpu]:
    """What the tests may use of this machine."""
    return chosen(installed(), None, os.environ.get("CUDA_VISIBLE_DEVICES"))


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: a process for each card, as two on one would disturb each other's windows; without a card this one."""
    return len(cards())


def pytest_configure(config: pytest.Config) -> None:
    """Of several processes each has a card to itself."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and (there := cards()):
        own = int(worker["workerid"].removeprefix("gw")) % len(there)
        os.environ["CUDA_VISIBLE_DEVICES"] = there[own].uuid


def die_with_parent() -> None:
    """A `preexec_fn`: the child is killed when the test process ends, however it ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_redis(folder: Path, port: int, *options: str) -> subprocess.Popen[bytes]:
    """A valkey server on that port, or the one that REDIS_SERVER names, answering.

    Raises AssertionError with its log when it does not start.
    """
    log = folder / "valkey.log"
    with log.open("ab") as sink:
        server = subprocess.Popen(
            [
                *(os.environ.get("REDIS_SERVER") or binary(), "--port", str(port), "--bind", "127.0.0.1"),
                *("--dir", str(folder), "--save", "", "--appendonly", "yes", *options),
            ],
            stdout=sink,
            stderr=sink,
            preexec_fn=die_with_parent,
        )
    deadline = time.monotonic() + START_S
    with Redis(port=port) as client:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                client.ping()
                return server
            except RedisConnectionError:
                time.sleep(0.01)
    server.kill()
    server.wait()
    raise AssertionError(f"valkey did not start on port {port}:\n{log.read_text()}")


@pytest.fixture(scope="session", autouse=True)
def lease_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests neither wait for a service that runs on this machine nor hold it up, but where LEASE_DIR is set.

    Several runs of pytest on one card have to share it: their windows would disturb one another.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEASE_DIR", os.environ.get("LEASE_DIR") or str(tmp_path_factory.mktemp("leases")))
        settings.cache_clear()
        yield
    settings.cache_clear()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A valkey server for the whole session; the settings of this process, and of its children, point at it."""
    folder = tmp_path_factory.mktemp("valkey")
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    server = start_redis(folder, port, "--appendonly", "no")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELERY_BROKER_URL", url)
        patch.setenv("STATE_DIR", str(tmp_path_factory.mktemp("state")))
        settings.cache_clear()
        # Whoever published before had the application read its broker from the settings as they were then.
        with published_to(url):
            yield url
    settings.cache_clear()
    server.terminate()
    server.wait(timeout=START_S)


@pytest.fixture(scope="session", autouse=True)
def no_pause_before_last_attempts() -> Iterator[None]:
    """In this process: most tests that use up a job's attempts have no reconciler. Tests of the pause set it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_store, "LAST_PAUSE_S", 0)
        yield


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A client on an empty database; values come back as bytes."""
    with Redis.from_url(redis_url) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def worker() -> Iterator[Any]:
    """One worker for every submission of the corpora: what one leaves behind would show in those after it."""
    from tests.own_worker import own_worker

    with own_worker() as opened:
        yield opened


@pytest.fixture(scope="session")
def court(worker: Any) -> Any:
    """Judges exploits and their honest look-alikes."""
    from tests.exploits.judge_submission import Court

    return Court(worker)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the long tests. Tests marked gpu are skipped where there is no card, and said to be."""
    for item in items:
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
    # By the marker: `item.keywords` has the names of folders too, such as tests/profiling/gpu.
    if not any(item.get_closest_marker("gpu") for item in items) or detect().is_gpu:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))
