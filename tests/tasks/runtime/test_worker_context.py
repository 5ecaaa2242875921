"""What a pool child's process is set to when its worker opens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tasks.runtime.worker_context
from domain.fault import InfrastructureFault
from domain.request import Request
from domain.result import Status
from domain.settings import settings
from profiling.gpu.measured_peaks import Ceilings
from profiling.window.call_buffers import Slots
from sandbox.supervisor.runner_process import RunnerProcess
from sandbox.supervisor.zygote_client import Zygote
from tasks.evaluation.pipeline import run
from tasks.node.device_info import Device
from tests.own_worker import own_worker


def test_on_the_host_the_referee_computes_in_one_thread() -> None:
    """Threads that wait for each other wait for whatever else has their cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with own_worker() as worker:
            assert worker.device.is_cuda or torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_gpu_on_which_cuda_does_not_start_is_not_replaced_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver lists the card, but this process cannot use it: its node is gone, or it has fallen off the bus."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    card = Device("GPU-1", 0, "NVIDIA H100 80GB HBM3", "h100")
    monkeypatch.setattr(tasks.runtime.worker_context, "detect", lambda: card)
    with pytest.raises(InfrastructureFault, match="CUDA does not start on the NVIDIA H100"), own_worker():
        pass


def test_on_the_host_a_job_finds_its_runners_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[Path] = []
    fork = Zygote.runner

    def noted(self: Zygote, folder: Path, **more: Any) -> RunnerProcess:
        forked.append(folder)
        return fork(self, folder, **more)

    monkeypatch.setattr(Zygote, "runner", noted)
    monkeypatch.setenv("WARM_REFERENCE_SECONDS", "0")
    source = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    kernel = {"source_code": f"{source}def get_inputs():\n    return [torch.randn(64)]\n", "kernel_type": "torch"}
    request = Request.from_wire({"kernel": kernel, "reference": kernel, "num_trials": 1, "timeout": 30})
    with own_worker() as worker:
        if worker.device.is_cuda:
            pytest.skip("of hosts without a GPU")
        for jobs in range(2):
            forked.clear()
            report = run(request, worker)
            assert report.outcome.status is Status.PASSED
            assert bool(forked) == (jobs == 0)
            worker.refill_pool()
            assert worker.runner_pool.ready == 2


@pytest.mark.parametrize(
    ("usual", "here", "shift"),
    [
        (3.6e-3, 3.7e-3, 0.1e-3),
        (3.6e-3, 3.4e-3, -0.2e-3),
        (3.6e-3, 4.0e-3, None),
        (3.6e-3, 2.1e-3, None),
        (None, 3.7e-3, None),
    ],
)
def test_a_launch_that_costs_far_more_than_in_any_context_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, usual: float | None, here: float, shift: float | None
) -> None:
    standby: Any = SimpleNamespace(launch_ms=here)
    with own_worker() as worker:
        monkeypatch.setattr(worker, "ceilings", lambda: Ceilings(launch_ms=usual))
        found = worker.launch_shift_ms(standby, lambda: False)
    assert found == (None if shift is None else pytest.approx(shift))


def test_calm_is_asked_for_only_where_another_child_can_take_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tasks.runtime.worker_context, "stays_free", lambda device, _: asked.append(device) or True)
    with own_worker() as worker:
        for workers, is_cuda, calm in ((4, True, True), (1, True, False), (4, False, False)):
            given = replace(settings(), max_workers=workers)
            monkeypatch.setattr(tasks.runtime.worker_context, "settings", lambda given=given: given)
            with monkeypatch.context() as patch:
                patch.setattr(worker.device, "is_cuda", is_cuda)
                assert worker._is_calm() is calm
    assert len(asked) == 1


def test_a_null_window_that_the_referee_has_no_memory_for_leaves_no_runner_in_its_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The runner would wait for the end of that window, and the referee for the runner, between jobs and for good."""
    slots = Slots(2, [torch.zeros(4)], (), [torch.zeros(4)], "cpu")
    slots.broadcast([torch.zeros(4)])
    lacks: list[bool] = []

    def output_bytes(layout: Slots) -> int:
        if lacks:
            raise torch.OutOfMemoryError("device memory")
        return layout.size - layout.inputs_end

    monkeypatch.setattr(Slots, "output_bytes", property(output_bytes))
    with own_worker() as worker:
        assert worker.null_window(slots, gated=False).elapsed_ms > 0
        zygote = worker.zygote
        lacks.append(True)
        with pytest.raises(torch.OutOfMemoryError):
            worker.null_window(slots, gated=False)
        worker.release_job_memory()
        lacks.clear()
        assert worker.null_window(slots, gated=False).elapsed_ms > 0
        assert worker.zygote is zygote, "the runner failed only afterwards, with all others"
