"""Heartbeats: a worker is listed while it says that it lives, and no longer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest
from redis import Redis

from domain.settings import settings
from sandbox.protocol.cuda_driver import ONE_QUEUE
from tasks.fleet import heartbeat
from tasks.fleet.heartbeat import Heartbeat, forget_silent_workers, workers
from tasks.node.device_info import CPU, Device, DeviceError, detect
from tasks.worker.lifecycle import pin_device
from tests.tasks.example_jobs import until

GPU = Device("GPU-1234", gpu_index=1, gpu_name="NVIDIA H200", gpu_type="h200", driver="580.1")


def test_a_worker_is_listed_while_it_lives(redis: Redis) -> None:
    assert workers(redis) == []
    first, second = Heartbeat(redis, "gpu1@here", GPU, 4, {}), Heartbeat(redis, "cpu0@here", CPU, 2, {})
    first.start()
    second.start()
    until(lambda: len(workers(redis)) == 2)
    cpu, gpu = workers(redis)
    assert (cpu.name, cpu.device, cpu.gpu_available, cpu.gpu_uuid, cpu.max_workers) == (
        *("cpu0@here", "cpu", False),
        *(None, 2),
    )
    assert (gpu.name, gpu.gpu_available, gpu.gpu_uuid, gpu.gpu_index, gpu.gpu_type) == (
        *("gpu1@here", True),
        *("GPU-1234", 1, "h200"),
    )
    assert gpu.versions["driver"] == "580.1"
    assert (gpu.pid, gpu.max_workers) == (os.getpid(), 4)
    assert "celery" in gpu.versions
    assert abs(gpu.seen_at - time.time()) < 10
    first.stop()
    assert [worker.name for worker in workers(redis)] == ["cpu0@here"]
    second.stop()
    assert workers(redis) == []


def test_a_worker_of_a_later_version_is_known(redis: Redis) -> None:
    Heartbeat(redis, "gpu1@here", GPU, 4, {}).beat()
    redis.set("worker:gpu1@here", json.dumps({**json.loads(redis.get("worker:gpu1@here") or b""), "mood": "good"}))
    assert [worker.name for worker in workers(redis)] == ["gpu1@here"]


def test_a_worker_that_falls_silent_is_forgotten(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TTL_S", 1)
    Heartbeat(redis, "gpu1@here", GPU, 4, {}).beat()
    assert len(workers(redis)) == 1
    until(lambda: workers(redis) == [])
    assert redis.smembers("workers") == {b"gpu1@here"}, "reading writes nothing, which a Redis may refuse"
    monkeypatch.undo()
    Heartbeat(redis, "cpu0@here", CPU, 2, {}).beat()
    forget_silent_workers(redis)
    assert redis.smembers("workers") == set(redis.hkeys("workers:gpu")) == {b"cpu0@here"}


@pytest.fixture
def fresh_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    settings.cache_clear()
    yield monkeypatch
    settings.cache_clear()


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_no_visible_device_means_the_cpu(fresh_settings: pytest.MonkeyPatch, hidden: str) -> None:
    fresh_settings.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert detect() == CPU


def test_the_cpu_may_be_asked_for(fresh_settings: pytest.MonkeyPatch) -> None:
    fresh_settings.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fresh_settings.setenv("GPU_DEVICE", "cpu")
    assert detect() == CPU


def test_a_worker_s_referee_has_queues_for_several_streams(fresh_settings: pytest.MonkeyPatch) -> None:
    """Or it could not let go of its own stream, which waits for a runner's, by another one."""
    for name, value in (ONE_QUEUE | {"CUDA_VISIBLE_DEVICES": ""}).items():
        fresh_settings.setenv(name, value)
    pin_device()
    assert not os.environ.keys() & {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS"}


def test_a_gpu_that_is_not_there_is_an_error(fresh_settings: pytest.MonkeyPatch) -> None:
    fresh_settings.setenv("CUDA_VISIBLE_DEVICES", "77")
    with pytest.raises(DeviceError, match="77"):
        detect()


@pytest.mark.gpu
def test_the_gpu_is_found_without_cuda(fresh_settings: pytest.MonkeyPatch) -> None:
    fresh_settings.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = detect()
    assert found.is_gpu and found.name.startswith("GPU-") and found.driver
    fresh_settings.setenv("CUDA_VISIBLE_DEVICES", found.name[:12])
    settings.cache_clear()
    assert detect() == found
