"""What a pool child's process is set to when its workbench opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from domain.request import Request
from domain.result import Status
from sandbox.launcher import Zygote
from sandbox.runner_process import Runner
from tasks.pipeline import run
from tests.bench import own_workbench


def test_on_the_host_the_referee_computes_in_one_thread() -> None:
    """Threads that wait for each other wait for whatever else has their cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with own_workbench() as bench:
            assert bench.device.is_cuda or torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_on_the_host_a_job_finds_its_runners_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[Path] = []
    fork = Zygote.runner

    def noted(self: Zygote, folder: Path, **more: Any) -> Runner:
        forked.append(folder)
        return fork(self, folder, **more)

    monkeypatch.setattr(Zygote, "runner", noted)
    source = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    kernel = {"source_code": f"{source}def get_inputs():\n    return [torch.randn(64)]\n", "kernel_type": "torch"}
    request = Request.from_wire({"kernel": kernel, "reference": kernel, "num_trials": 1, "timeout": 30})
    with own_workbench() as bench:
        if bench.device.is_cuda:
            pytest.skip("of hosts without a GPU")
        for jobs in range(2):
            forked.clear()
            report = run(request, bench, lambda entered: None, lambda: False)
            assert report.outcome.status is Status.PASSED
            assert bool(forked) == (jobs == 0)
            bench.stock_up()
            assert bench.standbys.ready == 2
