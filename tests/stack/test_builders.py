"""`python -m stack.builders`: what a builder's container runs, beside a node's workers that judge."""

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
from sandbox.isolation.layer_probe import probe_layers
from tasks.fleet.heartbeat import workers
from tasks.fleet.prebuilder_registry import builders
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import submit
from tests.conftest import die_with_parent
from tests.stack.serving import READY_S, STOP_S, wait_for
from tests.tasks.evaluation.test_pipeline_gpu import TYPES
from tests.tasks.example_jobs import RELU, seen

BUILT_S = 180.0
TOLD = 4000
"""Letters of a log, where a test fails beside who writes it."""

ENDLESS = RELU.replace("return torch.relu(x)", "while True: pass")


def environment(redis_url: str, state: Path, **more: str) -> dict[str, str]:
    own = {"CELERY_BROKER_URL": redis_url, "STATE_DIR": str(state), "SHARED_BUILDS_MIB": "64", "MAX_WORKERS": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return inherited | own | {"GPU_DEVICE": "cpu"} | more


def told(own: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stack.builders", *arguments]
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=60)


@contextmanager
def started(module: str, own: dict[str, str], log: Path) -> Iterator[psutil.Popen]:
    with log.open("wb") as lines:
        command = [sys.executable, "-m", module]
        process = psutil.Popen(command, cwd=ROOT, env=own, stdout=lines, stderr=lines, preexec_fn=die_with_parent)
    try:
        yield process
    except BaseException as error:
        error.add_note(f"{module}: {log.read_text()[-TOLD:]}")
        raise
    finally:
        # Asked, so that nothing of it is heard of any more in the next test.
        if process.is_running():
            process.terminate()
            process.wait(STOP_S)


def occupied(records: JobStore) -> str:
    """The job that keeps the judge busy. Who builds starts after it has begun, or may build that too."""
    busy = submit(records, Request(kernel=Kernel(ENDLESS, KernelType.TORCH), timeout=300)).job_id
    wait_for(lambda: seen(records, busy).state is State.RUNNING, READY_S, "the judge is busy")
    return busy


def test_without_a_place_for_builds_it_does_not_start(redis_url: str, tmp_path: Path) -> None:
    refused = told(environment(redis_url, tmp_path, SHARED_BUILDS_MIB="0"))
    assert refused.returncode == 2
    assert "SHARED_BUILDS_MIB" in refused.stderr
    refused = told(environment(redis_url, tmp_path, BUILD_CACHE_MIB="0"))
    assert refused.returncode == 2
    assert "BUILD_CACHE_MIB" in refused.stderr
    refused = told(environment(redis_url, tmp_path, BUILD_FOR="h100"))
    assert refused.returncode == 2
    assert "sm_90" in refused.stderr


@pytest.mark.slow
def test_it_builds_for_who_judges_while_that_one_is_busy(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    """It finds out for whom by his heartbeat; both have a node of their own."""
    records = JobStore(redis, ttl_s=600)
    judges = environment(redis_url, tmp_path / "judges")
    builds = environment(redis_url, tmp_path / "builds")
    with started("stack.workers", judges, tmp_path / "workers.log"):
        wait_for(lambda: any(worker.toolchain for worker in workers(redis)), READY_S, "the judge says what he has")
        busy = occupied(records)
        with started("stack.builders", builds, tmp_path / "builders.log") as process:
            assert "not heard of: builder0@" in told(builds, "--check").stdout
            wait_for(lambda: told(builds, "--check").returncode == 0, READY_S, "the builder is heard of")
            job = submit(records, Request(kernel=Kernel(RELU, KernelType.TORCH), num_trials=1)).job_id
            wait_for(lambda: builders(redis)[0].shared == 1, READY_S, "the next job's kernel is built")
            records.cancel(busy)
            wait_for(lambda: seen(records, job).state is State.COMPLETED, READY_S, "the next job is done")
            (builder,) = builders(redis)
            assert builder.builds_for == ["cpu"]
            result = seen(records, job).result
            assert result is not None
            built = result["kernel_exec_result"]["build"]
            assert (built["compile_cache"], built["built_by"]) == ("remote_hit", builder.name)
            below = process.children(recursive=True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
            assert not [child for child in below if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
            assert builders(redis) == []
    assert list((tmp_path / "builds" / "work").iterdir()) == []


@pytest.mark.gpu
@pytest.mark.timeout(400)
def test_what_is_built_without_a_card_is_judged_on_one(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    records = JobStore(redis, ttl_s=600)
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    judges = environment(redis_url, tmp_path / "judges", GPU_DEVICE=card)
    builds = environment(redis_url, tmp_path / "builds", CUDA_VISIBLE_DEVICES="")
    sources = {
        name: {**TYPES[name], "source_code": TYPES[name]["source_code"].replace(" BUG", "")}
        for name in ("cuda", "torch_cuda", "triton")
    }
    with started("stack.workers", judges, tmp_path / "workers.log"):
        wait_for(lambda: any(worker.toolchain for worker in workers(redis)), READY_S, "the judge says what he has")
        busy = occupied(records)
        with started("stack.builders", builds, tmp_path / "builders.log"):
            wait_for(lambda: any(each.builds_for for each in builders(redis)), READY_S, "the builder knows for what")
            jobs = {
                name: submit(records, Request(kernel=Kernel.from_wire(source), num_trials=6)).job_id
                for name, source in sources.items()
            }
            wait_for(lambda: builders(redis)[0].shared == len(jobs), BUILT_S, "all of them are built")
            records.cancel(busy)
            for name, job in jobs.items():
                wait_for(lambda job=job: seen(records, job).state is State.COMPLETED, READY_S, name)  # type: ignore[misc]
            (builder,) = builders(redis)
    assert len(builder.builds_for) == 1 and builder.builds_for[0].startswith("sm_")
    for name, job in jobs.items():
        result = seen(records, job).result
        assert result is not None
        told = result["kernel_exec_result"]
        assert result["verdict"] == "passed", (name, told)
        assert (told["build"]["compile_cache"], told["build"]["built_by"]) == ("remote_hit", builder.name), name
        assert told["build"]["deferred"] is None, name


@pytest.mark.slow
def test_it_refuses_where_its_sandbox_does_not_hold(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    lacking = [name for name, layer in probe_layers(tmp_path / "probe", gpu=False).items() if not layer.active]
    if not lacking:
        pytest.skip("every layer holds here")
    own = environment(redis_url, tmp_path / "state", SANDBOX=lacking[0], BUILD_FOR="cpu")
    with started("stack.builders", own, tmp_path / "log"):
        wait_for(lambda: "SANDBOX requires" in (tmp_path / "log").read_text(), READY_S, "it says so")
    assert builders(redis) == []
