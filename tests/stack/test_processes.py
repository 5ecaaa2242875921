"""What the service's own processes are started with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from domain.host_memory import runner_memory_share
from domain.settings import settings
from stack import processes
from stack.devices import Gpu


def test_each_gpu_has_a_worker_that_sees_it_alone(tmp_path: Path) -> None:
    started = processes.workers(settings(), [Gpu(0, "GPU-a", "H200"), Gpu(1, "GPU-b", "H200")], tmp_path)
    assert [(program.name, program.environment["CUDA_VISIBLE_DEVICES"]) for program in started] == [
        ("gpu0", "GPU-a"),
        ("gpu1", "GPU-b"),
    ]


def test_on_the_cpu_threads_that_wait_sleep(tmp_path: Path) -> None:
    (only,) = processes.workers(settings(), [], tmp_path)
    assert (only.name, only.environment["CUDA_VISIBLE_DEVICES"]) == ("cpu0", "")
    assert only.environment["OMP_WAIT_POLICY"] == "passive"


def test_the_runners_of_all_workers_share_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNNER_MEMORY_MIB", raising=False)
    gpus = [Gpu(0, "GPU-a", "H200"), Gpu(1, "GPU-b", "H200")]
    given = replace(settings(), max_workers=3)
    share = str(runner_memory_share(2 * 3) >> 20)
    for program in processes.workers(given, gpus, tmp_path):
        assert program.environment["RUNNER_MEMORY_MIB"] == share
    monkeypatch.setenv("RUNNER_MEMORY_MIB", "777")
    for program in processes.workers(given, gpus, tmp_path):
        assert program.environment["RUNNER_MEMORY_MIB"] == "777"
