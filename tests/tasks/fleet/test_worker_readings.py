"""What a worker measures of itself: its card through a process of its own, its kept builds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from tasks.fleet.heartbeat import Heartbeat, workers
from tasks.fleet.worker_readings import Reading, key, readings
from tasks.node.device_info import CPU, Device, detect
from tasks.worker.gpu_sampler import Card, CardSampler
from tasks.worker.worker_gauges import Gauges, cached_build_bytes
from tests.child_processes import running
from tests.conftest import free_port
from tests.tasks.example_jobs import until


def test_readings_go_with_the_heartbeat(redis: Redis, tmp_path: Path) -> None:
    kept = tmp_path / "entries"
    kept.mkdir()
    (kept / "a.zip").write_bytes(b"x" * 1000)
    (kept / ".draft-b").write_bytes(b"x" * 1000)
    heartbeat = Heartbeat(redis, "cpu0@here", CPU, 2, {}, readings=Gauges(CPU, tmp_path).read)
    heartbeat.start()
    until(lambda: workers(redis))
    assert [worker.name for worker in workers(redis)] == ["cpu0@here"]
    assert readings(redis, ["cpu0@here", "gone@here"]) == {"cpu0@here": {"build_cache_bytes": 1000}}
    assert 0 < redis.ttl(key("cpu0@here")) <= 10
    heartbeat.stop()
    assert readings(redis, ["cpu0@here"]) == {}
    assert cached_build_bytes(tmp_path / "nowhere") == 0


def test_a_worker_lives_whatever_becomes_of_its_metrics(redis: Redis) -> None:
    def full() -> Reading:
        raise OSError("no space left on device")

    Heartbeat(redis, "cpu0@here", CPU, 2, {}, readings=full).beat()
    assert [worker.name for worker in workers(redis)] == ["cpu0@here"]
    assert readings(redis, ["cpu0@here"]) == {"cpu0@here": {}}


@pytest.mark.skipif(detect().is_gpu, reason="there is a driver")
def test_without_a_driver_the_sampler_says_so() -> None:
    sampler = CardSampler("GPU-1234")
    try:
        until(sampler.reading)
        assert "NVML does not start" in (sampler.reading() or {})["unavailable"]
        # Killed, it is started again, as long as somebody asks.
        (first,) = sampler_pids()
        os.kill(first, signal.SIGKILL)
        until(lambda: sampler.reading() and sampler_pids() - {first})
    finally:
        sampler.stop()


def sampler_pids() -> set[int]:
    """The samplers that this process has started and that have not ended."""
    return {process.pid for process in running("tasks.worker.gpu_sampler")}


def test_the_sampler_ends_with_its_parent() -> None:
    stranger = free_port() + 100_000
    done = subprocess.run(
        [sys.executable, "-m", "tasks.worker.gpu_sampler", "GPU-1", f"{stranger}"], capture_output=True
    )
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.gpu
def test_the_cards_figures() -> None:
    found: Device = detect()
    reading = json.loads(json.dumps(Card(found.name).reading()))
    assert reading["memory_bytes"] >= reading["memory_used_bytes"] > 0
    assert 0 < reading["temperature_c"] < 120
    assert reading["sm_clock_mhz"] > 0 and reading["memory_clock_mhz"] > 0
    assert 0 < reading["power_w"] < reading["power_limit_w"] * 2
    assert 0 <= reading["utilization_percent"] <= 100
    sampler = CardSampler(found.name)
    try:
        until(sampler.reading)
        assert "temperature_c" in (sampler.reading() or {})
    finally:
        sampler.stop()
