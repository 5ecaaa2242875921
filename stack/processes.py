"""The service's own processes: the API, and one Celery worker per GPU or one for the CPU."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from domain.host_memory import runner_memory_share
from domain.paths import ROOT
from domain.settings import MIB, Settings
from stack.child import Program
from stack.devices import Gpu
from stack.environment import for_child, is_set

GPU_WORKERS = 4
CPU_WORKERS = 2
"""Jobs of a worker at once if MAX_WORKERS is not set: builds overlap, and the GPU takes one job at a time."""

QUEUE = "evaluate"


def api(settings: Settings, temporary: Path) -> Program:
    return Program(
        name="api",
        command=[sys.executable, "-m", "gunicorn", "--config", "python:api.gunicorn_config", "api:create_app()"],
        environment=for_child(settings, temporary),
        folder=ROOT,
    )


def workers(settings: Settings, gpus: list[Gpu], temporary: Path) -> list[Program]:
    """One worker for each GPU, or one for the CPU if there is no GPU."""
    concurrency = jobs_at_once(settings, gpus)
    # Pinned by UUID, which names the same device in any order of CUDA's devices.
    pinned = {f"gpu{gpu.index}": gpu.uuid for gpu in gpus} or {"cpu0": ""}
    # Kernels run on the same cores: the referee's spinning threads would make a small job take up to five times as long
    # on a busy machine (docs/measurements.md).
    sleeping = {} if gpus else {"OMP_WAIT_POLICY": "passive"}
    more = sleeping | _runner_memory(len(pinned) * concurrency)
    return [
        _worker(name, concurrency, settings, for_child(settings, temporary, CUDA_VISIBLE_DEVICES=visible, **more))
        for name, visible in pinned.items()
    ]


def _runner_memory(jobs_at_once: int) -> dict[str, str]:
    """The share of one submission's process, unless the user has set it: a worker does not know of the others."""
    return {} if is_set("RUNNER_MEMORY_MIB") else {"RUNNER_MEMORY_MIB": str(runner_memory_share(jobs_at_once) // MIB)}


def jobs_at_once(settings: Settings, gpus: list[Gpu]) -> int:
    return settings.max_workers or (GPU_WORKERS if gpus else CPU_WORKERS)


def _worker(name: str, concurrency: int, settings: Settings, environment: dict[str, str]) -> Program:
    options = ["--hostname", f"{name}@%h", "--queues", QUEUE, "--concurrency", str(concurrency)]
    quieter = ["--task-events", "--without-gossip", "--without-mingle", "--loglevel", settings.log_level]
    return Program(
        name=name,
        command=[sys.executable, "-m", "celery", "--quiet", "--app", "tasks.app", "worker", *options, *quieter],
        environment=environment,
        folder=ROOT,
        drains=True,
    )


def node_name(worker: Program) -> str:
    """The worker's name in Celery and in job records."""
    return f"{worker.name}@{socket.gethostname()}"
