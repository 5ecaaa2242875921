"""What the service's own processes are started with."""

from __future__ import annotations

from pathlib import Path

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
