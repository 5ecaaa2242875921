"""A worker under a set of rights, the jobs that it judged, and how it ended. Redis and the API are elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from redis import Redis

from domain.paths import ROOT
from domain.result import Status
from stack.example import FOLDER, Example
from stack.example_run import Trial
from tasks.fleet.heartbeat import WorkerView, workers
from tests.conftest import die_with_parent, free_port
from tests.rights.rights_sets import Rights
from tests.stack.serving import READY_S, STOP_S, wait_for

JOBS_S = 180.0
POLL_S = 0.1
TOLD = 6000
"""Characters of the worker's log, where a test fails beside it."""

EXAMPLES = (
    *("torch-layer-norm", "triton-vector-add", "cuda-saxpy", "multi-kernel-rms-norm", "compare-wrong", "crashes"),
    *("gluon-scaled-add", "helion-softmax", "tilelang-scaled-add", "cute-dsl-scaled-add"),
)
"""Of each kernel type one, a comparison, and a process that ends by a signal."""
SOURCE = Path(__file__).with_name("host_extension.py").read_text(encoding="utf-8")
EXTENSION = Example(
    name="host-extension",
    endpoint="/evaluate",
    body={
        "kernel": {
            "source_code": SOURCE,
            "kernel_type": "torch_cuda",
        },
        "num_trials": 1,
        "timeout": 120,
    },
    on_gpu=Status.PASSED,
    on_cpu=Status.PASSED,
    faster=False,
    note="C++ that is compiled on the host",
)
AGAIN = ("torch-layer-norm", "host-extension")
"""Sent once more: their builds are in the cache then."""


@dataclass(frozen=True)
class Worked:
    """What one worker did, and its whole log. `left`: the names that it left in its folder of jobs."""

    view: WorkerView
    jobs: list[Trial]
    again: list[Trial]
    exit_status: int
    left: list[str]
    log: str


def examples() -> list[Example]:
    return [*(Example.load(FOLDER / name) for name in EXAMPLES), EXTENSION]


@contextmanager
def api(redis_url: str, folder: Path) -> Iterator[httpx.Client]:
    """A client of the service's API, in a process of its own with the tests' rights."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    own = {"CELERY_BROKER_URL": redis_url, "HOST": "127.0.0.1", "PORT": str(port), "REQUIRE_API_KEYS": "off"}
    command = [sys.executable, "-m", "gunicorn", "--config", "python:api.gunicorn_config", "api:create_app()"]
    with (folder / "api.log").open("wb") as log, httpx.Client(base_url=url, trust_env=False, timeout=30.0) as client:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | own, stdout=log, stderr=log, preexec_fn=die_with_parent
        )
        try:
            wait_for(lambda: _answers(client), READY_S, "the API answers")
            yield client
        finally:
            process.terminate()
            process.wait(STOP_S)


def _answers(client: httpx.Client) -> bool:
    try:
        return bool(client.get("/openapi.json").status_code == httpx.codes.OK)
    except httpx.TransportError:
        return False


def worked(
    rights: Rights,
    command: list[str],
    folder: Path,
    log: Path,
    redis: Redis,
    client: httpx.Client,
    *,
    device: str = "cpu",
    sent: list[Example] | None = None,
) -> Worked:
    """A worker under those rights, from its start to its end; `command` starts an interpreter that has them.

    It judges `sent` on `device`, which is a value of GPU_DEVICE.
    """
    sent = examples() if sent is None else sent
    own = {
        "CELERY_BROKER_URL": os.environ["CELERY_BROKER_URL"],
        "STATE_DIR": str(folder / "state"),
        "LEASE_DIR": str(folder),
        "HOME": "/tmp" if rights.temporary is not None else str(folder),
        "GPU_DEVICE": device,
        "MAX_WORKERS": "1",
        "DRAIN_SECONDS": "2",
        "PYTHONDONTWRITEBYTECODE": "1",
        # What compose requires as well; what else holds is told in the heartbeat.
        "SANDBOX": "capabilities,no_new_privileges,landlock,seccomp",
    }
    not_inherited = ("TMPDIR", "CUDA_VISIBLE_DEVICES", "XDG_STATE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in not_inherited} | own
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [*command, "-m", "stack.workers"], cwd=ROOT, env=environment, stdout=lines, stderr=lines,
            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        wait_for(lambda: process.poll() is not None or bool(workers(redis)), READY_S, "the worker is heard of")
        assert process.poll() is None, "the worker did not start"
        (view,) = workers(redis)
        gpu = device != "cpu"
        jobs = _judged(client, redis, sent, gpu=gpu)
        again = _judged(client, redis, [each for each in sent if each.name in AGAIN], gpu=gpu)
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_S)
        wait_for(lambda: not workers(redis), STOP_S, "the worker says that it goes")
        left = sorted(path.name for path in (folder / "state" / "work").iterdir())
        return Worked(view, jobs, again, status, left, log.read_text())
    except BaseException as error:
        error.add_note(f"{rights.name}: {log.read_text()[-TOLD:]}")
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _judged(client: httpx.Client, redis: Redis, those: list[Example], *, gpu: bool) -> list[Trial]:
    """Raises AssertionError where the worker has taken itself out of service, or a job has no end in JOBS_S."""
    trials = [Trial.post(client, each, each.expected(gpu=gpu)) for each in those]
    deadline = time.monotonic() + JOBS_S
    while waiting := [trial for trial in trials if not trial.done]:
        reasons = [worker.quarantined for worker in workers(redis) if worker.quarantined]
        assert not reasons, f"the worker is quarantined: {reasons}"
        assert time.monotonic() < deadline, [(trial.example.name, trial.got) for trial in waiting]
        for trial in waiting:
            trial.poll(client)
        time.sleep(POLL_S)
    return trials
