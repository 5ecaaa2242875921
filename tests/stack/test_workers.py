"""`python -m stack.workers`: what a worker's container runs, and how its health is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from redis import Redis

from domain.job import State
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.request import Request
from stack.workers import ContainerLog
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import submit
from tests.chaos.load import SLOW_RUN
from tests.conftest import die_with_parent
from tests.stack.serving import READY_S, STOP_S, wait_for
from tests.tasks.example_jobs import seen

COMMAND = [sys.executable, "-m", "stack.workers"]


def environment(redis_url: str, folder: Path, **more: str) -> dict[str, str]:
    own = {"CELERY_BROKER_URL": redis_url, "STATE_DIR": str(folder / "state"), "DRAIN_SECONDS": "2", "MAX_WORKERS": "1"}
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("GPU_DEVICE", "CUDA_VISIBLE_DEVICES")
    }
    return inherited | own | more


def check(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "--check"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def on_the_cpu(redis_url: str, redis: Redis, tmp_path: Path) -> Iterator[tuple[psutil.Popen, dict[str, str]]]:
    own = environment(redis_url, tmp_path, GPU_DEVICE="cpu")
    with (tmp_path / "log").open("wb") as log:
        process = psutil.Popen(COMMAND, cwd=ROOT, env=own, stdout=log, stderr=log, preexec_fn=die_with_parent)
    yield process, own
    if process.is_running():
        process.kill()
        process.wait()


def test_healthy_while_they_live_and_nothing_is_left_when_asked_to_stop(
    on_the_cpu: tuple[psutil.Popen, dict[str, str]], tmp_path: Path
) -> None:
    process, own = on_the_cpu
    assert "not heard of: cpu0@" in check(own).stdout
    wait_for(lambda: check(own).returncode == 0, READY_S, "the worker is heard of")
    below = process.children(recursive=True)
    assert below
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_S) == 0
    assert not [child for child in below if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert check(own).returncode == 1
    assert "cpu0   | " in (tmp_path / "log").read_text()


def test_they_end_with_a_killed_supervisor(on_the_cpu: tuple[psutil.Popen, dict[str, str]], redis: Redis) -> None:
    process, _ = on_the_cpu
    wait_for(lambda: bool(workers(redis)), READY_S, "the worker is heard of")
    below = process.children(recursive=True)
    # They are asked to stop by the kernel, and nobody reads what they say any more. The broker is still there.
    process.kill()
    process.wait()
    gone, left = psutil.wait_procs(below, STOP_S)
    for each in left:
        each.kill()
    assert gone and not left


def test_a_job_that_runs_is_finished_when_asked_to_stop(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    own = environment(redis_url, tmp_path, GPU_DEVICE="cpu", DRAIN_SECONDS="100")
    records = JobStore(redis, ttl_s=600)
    job_id = submit(records, Request(kernel=Kernel(SLOW_RUN, KernelType.TORCH), num_trials=1)).job_id
    with (tmp_path / "log").open("wb") as log:
        process = psutil.Popen(COMMAND, cwd=ROOT, env=own, stdout=log, stderr=log, preexec_fn=die_with_parent)
    wait_for(lambda: seen(records, job_id).state is State.RUNNING, READY_S, "the job runs")
    process.send_signal(signal.SIGTERM)
    assert process.wait(READY_S) == 0
    job = seen(records, job_id)
    assert (job.state, job.attempt, job.failed_attempts) == (State.COMPLETED, 1, [])
    assert "stack  | waiting for 1 running job, at most 100 s" in (tmp_path / "log").read_text()


def test_without_a_broker_it_is_unhealthy_and_says_why(tmp_path: Path) -> None:
    told = check(environment("redis://127.0.0.1:1/0", tmp_path, GPU_DEVICE="cpu"))
    assert told.returncode == 1
    assert "CELERY_BROKER_URL" in told.stdout


def test_no_gpu_is_no_cpu_unless_it_is_said(redis_url: str, tmp_path: Path) -> None:
    # The library of the driver cannot be there: so it is on every machine.
    none = (
        "import sys, runpy; import pynvml; pynvml.nvmlInit = lambda: (_ for _ in ()).throw(pynvml.NVMLError(1)); "
        "sys.argv = ['stack.workers']; runpy.run_module('stack.workers', run_name='__main__')"
    )
    told = subprocess.run(
        [sys.executable, "-c", none],
        cwd=ROOT, env=environment(redis_url, tmp_path), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert told.returncode == 1
    assert "GPU_DEVICE=cpu" in told.stderr


@pytest.mark.parametrize(
    ("absent", "module"),
    [
        # What the image of the API does not have, and what `python -m stack keys` needs there.
        (("httpx", "rich", "psutil", "backends", "validation", "profiling", "torch"), "api, stack.__main__"),
        (
            ("flask", "apiflask", "gunicorn", "httpx", "rich", "api"),
            "stack.workers, tasks.worker.lifecycle, tasks.worker.build_worker, tasks.prebuild.job_builds",
        ),
        # `celery flower` without --app takes celeryconfig.py, and goes on without it where it cannot be imported.
        (("flask", "api", "stack", "tasks", "sandbox", "backends", "pynvml", "numpy", "psutil"), "celeryconfig"),
    ],
    ids=["api", "worker", "flower"],
)
def test_an_image_has_what_it_imports(absent: tuple[str, ...], module: str) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_containers_log_is_json_or_readable(capsys: pytest.CaptureFixture[str]) -> None:
    line = '{"at": "2026-11-22T10:11:12.000+00:00", "level": "INFO", "message": "ready", "job_id": "1"}'
    ContainerLog("json").line("gpu0", line)
    ContainerLog("console").line("gpu0", line)
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {"process": "gpu0", **json.loads(line)}
    assert second == "gpu0   | 10:11:12 INFO    ready"
