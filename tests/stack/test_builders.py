"""A build-only worker as its container runs it, beside a node's workers that judge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from redis import Redis

from domain.job import State
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.request import Request
from domain.settings import settings
from sandbox.isolation.layer_probe import probe_layers
from tasks.fleet.heartbeat import workers
from tasks.jobs import submit as submission
from tasks.jobs.admission import NewJob
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import BUILD_QUEUE, submit, submit_many
from tasks.node.redis_client import text
from tests.conftest import die_with_parent
from tests.docs.test_compose import SERVICES
from tests.stack.serving import READY_S, STOP_S, wait_for
from tests.tasks.evaluation.test_pipeline_gpu import TYPES
from tests.tasks.example_jobs import RELU, seen

BUILT_S = 180.0
LOG_CHARS = 4000
"""Characters of a log that are shown where a test fails."""

WORKER = ["-m", "stack.workers"]
BUILDER = ["-m", *SERVICES["builder"]["command"]]
ENDLESS = RELU.replace("return torch.relu(x)", "while True: pass")
ENDLESS_THERE = f"import os, time\ntime.sleep(600 if '/builds/' in os.getcwd() else 0)\n{RELU}"
"""Its build hangs on the build-only worker."""


@pytest.fixture(autouse=True)
def shared_builds(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs are submitted as by an API with shared builds."""
    monkeypatch.setenv("SHARED_BUILDS_MIB", "64")
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=600)


def environment(redis_url: str, state: Path, **more: str) -> dict[str, str]:
    own = {"CELERY_BROKER_URL": redis_url, "STATE_DIR": str(state), "SHARED_BUILDS_MIB": "64", "MAX_WORKERS": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return inherited | own | {"GPU_DEVICE": "cpu"} | more


@contextmanager
def started(command: list[str], own: dict[str, str], log: Path) -> Iterator[psutil.Popen]:
    with log.open("wb") as lines:
        process = psutil.Popen(
            [sys.executable, *command], cwd=ROOT, env=own, stdout=lines, stderr=lines, preexec_fn=die_with_parent
        )
    try:
        yield process
    except BaseException as error:
        error.add_note(f"{command}: {log.read_text()[-LOG_CHARS:]}")
        raise
    finally:
        if process.is_running():
            process.terminate()
            try:
                process.wait(STOP_S)
            except psutil.TimeoutExpired:
                process.kill()  # As a container's engine does, after `stop_grace_period`.
                process.wait()


def is_healthy(own: dict[str, str]) -> bool:
    """Whether the container's health check passes."""
    check = SERVICES["builder"]["healthcheck"]["test"]
    assert check[0] == "CMD-SHELL"
    script = f"{sys.executable} -m {check[1].replace('$$', '$')}"
    hostname = os.uname().nodename
    return subprocess.run(
        ["sh", "-c", script], cwd=ROOT, env={**own, "HOSTNAME": hostname}, capture_output=True, timeout=60
    ).returncode == 0  # fmt: skip


def occupied(records: JobStore) -> str:
    """The job that keeps the worker busy. Its build tells the build-only worker what to build for."""
    busy = submit(records, Request(kernel=Kernel(ENDLESS, KernelType.TORCH), timeout=300)).job_id
    wait_for(lambda: seen(records, busy).state is State.RUNNING, READY_S, "the worker is busy")
    return busy


def build_of(records: JobStore, job_id: str) -> dict[str, str]:
    result = seen(records, job_id).result
    assert result is not None
    assert result["verdict"] == "passed", result
    build: dict[str, str] = result["kernel_exec_result"]["build"]
    return build


@pytest.mark.parametrize("setting", ["SHARED_BUILDS_MIB", "BUILD_CACHE_MIB"])
def test_without_a_place_for_builds_it_does_not_start(redis_url: str, tmp_path: Path, setting: str) -> None:
    refused = subprocess.run(
        [sys.executable, *BUILDER],
        cwd=ROOT, env=environment(redis_url, tmp_path, **{setting: "0"}), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert refused.returncode != 0
    assert setting in refused.stderr


def test_a_job_asks_for_its_builds_once_and_never_for_too_many(
    redis: Redis, records: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [(f"job {number}", Request(kernel=Kernel(f"{RELU}# {number}", KernelType.TORCH))) for number in range(4)]
    submit(records, jobs[0][1], job_id="job 0")
    assert redis.llen(BUILD_QUEUE) == 1
    submit(records, jobs[0][1], job_id="job 0")
    assert redis.llen(BUILD_QUEUE) == 1, "the job exists already"
    monkeypatch.setattr(submission, "MAX_BUILD_MESSAGES", 3)
    submit_many(records, [NewJob(*job) for job in jobs])
    assert (redis.llen(BUILD_QUEUE), redis.llen("evaluate")) == (3, 4)
    monkeypatch.setenv("SHARED_BUILDS_MIB", "0")
    settings.cache_clear()
    redis.delete(BUILD_QUEUE)
    submit(records, jobs[0][1], job_id="alone")
    assert not redis.exists(BUILD_QUEUE)


@pytest.mark.slow
def test_it_builds_while_the_worker_that_judges_is_busy(
    redis_url: str, redis: Redis, records: JobStore, tmp_path: Path
) -> None:
    judges, builds = (environment(redis_url, tmp_path / name) for name in ("judges", "builds"))
    with started(WORKER, judges, tmp_path / "workers.log"):
        busy = occupied(records)
        with started(BUILDER, builds, tmp_path / "builders.log") as process:
            wait_for(lambda: is_healthy(builds), READY_S, "the build-only worker answers")
            assert len(workers(redis)) == 1, "it counts as no worker that judges"
            job = submit(records, Request(kernel=Kernel(RELU, KernelType.TORCH), num_trials=1)).job_id
            wait_for(lambda: redis.hlen("builds:archives") == 2, READY_S, "the next job's kernel is built")
            records.cancel(busy)
            wait_for(lambda: seen(records, job).state is State.COMPLETED, READY_S, "the next job is done")
            build = build_of(records, job)
            assert (build["compile_cache"], build["built_by"]) == ("remote_hit", f"builder@{os.uname().nodename}")
            below = process.children(recursive=True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
            wait_for(lambda: not _running(below), STOP_S, "nothing of it is left")
            assert not is_healthy(builds)
    assert list((tmp_path / "builds" / "work").iterdir()) == []


@pytest.mark.slow
def test_one_that_is_killed_in_a_build_costs_nothing(redis_url: str, records: JobStore, tmp_path: Path) -> None:
    judges, builds = (environment(redis_url, tmp_path / name) for name in ("judges", "builds"))
    with started(WORKER, judges, tmp_path / "workers.log"):
        busy = occupied(records)
        with started(BUILDER, builds, tmp_path / "builders.log") as process:
            job = submit(records, Request(kernel=Kernel(ENDLESS_THERE, KernelType.TORCH), num_trials=1)).job_id
            wait_for(lambda: any((tmp_path / "builds" / "work").rglob("build")), READY_S, "it builds")
            below = process.children(recursive=True)
            process.kill()
            process.wait()
            wait_for(lambda: not _running(below), STOP_S, "nothing of it is left")
        records.cancel(busy)
        wait_for(lambda: seen(records, job).state is State.COMPLETED, READY_S, "the next job is done")
        assert build_of(records, job)["compile_cache"] == "miss"


@pytest.mark.gpu
@pytest.mark.timeout(400)
def test_what_is_built_without_a_card_is_judged_on_one(
    redis_url: str, redis: Redis, records: JobStore, tmp_path: Path
) -> None:
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    judges = environment(redis_url, tmp_path / "judges", GPU_DEVICE=card)
    builds = environment(redis_url, tmp_path / "builds", CUDA_VISIBLE_DEVICES="")
    sources = {
        name: {**TYPES[name], "source_code": TYPES[name]["source_code"].replace(" BUG", "")}
        for name in ("cuda", "torch_cuda", "triton")
    }
    with started(WORKER, judges, tmp_path / "workers.log"):
        busy = occupied(records)
        before = redis.hlen("builds:archives")
        with started(BUILDER, builds, tmp_path / "builders.log"):
            jobs = {
                name: submit(records, Request(kernel=Kernel.from_wire(source), num_trials=6)).job_id
                for name, source in sources.items()
            }
            wait_for(lambda: redis.hlen("builds:archives") == before + len(jobs), BUILT_S, "all of them are built")
            records.cancel(busy)
            for name, job in jobs.items():
                wait_for(lambda job=job: seen(records, job).state is State.COMPLETED, READY_S, name)  # type: ignore[misc]
    (target,) = redis.zrange("builds:targets", 0, -1)
    assert '"sm_' in text(target)
    for name, job in jobs.items():
        build = build_of(records, job)
        assert (build["compile_cache"], build["built_by"]) == ("remote_hit", f"builder@{os.uname().nodename}"), name
        assert build["deferred"] is None, name


@pytest.mark.slow
def test_it_refuses_where_its_sandbox_does_not_hold(redis_url: str, tmp_path: Path) -> None:
    lacking = [name for name, layer in probe_layers(tmp_path / "probe", gpu=False).items() if not layer.active]
    if not lacking:
        pytest.skip("every layer holds here")
    refused = subprocess.run(
        [sys.executable, *BUILDER], cwd=ROOT, env=environment(redis_url, tmp_path / "state", SANDBOX=lacking[0]),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert refused.returncode != 0
    assert "SANDBOX requires" in refused.stderr


def _running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
