"""A reference's runner that is kept on a GPU holds no tensors between jobs, and its times are those of a new one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

JOBS = 20
SOURCE = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential({layers})
    def forward(self, x):
        return self.layers(x)

def get_inputs():
    return [torch.randn({shape})]
"""
LAYERS = {
    "linear": ("nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU()", "256, 1024"),
    "convolution": ("nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU()", "16, 16, 64, 64"),
    "softmax": ("nn.Softmax(-1)", "1024, 1024"),
}


@pytest.fixture
def worker() -> Iterator[WorkerContext]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARM_REFERENCE_SECONDS", "30")
        with own_worker() as opened:
            opened.ceilings()
            yield opened


def judged(worker: WorkerContext, name: str) -> Report:
    layers, shape = LAYERS[name]
    candidate, reference = (
        {"kernel_type": "torch", "source_code": SOURCE.format(name=each, layers=layers, shape=shape)}
        for each in ("ModelNew", "Model")
    )
    wire = {"kernel": candidate, "reference": reference, "num_trials": 20, "timeout": 60, "budget": "quick"}
    report = run(Request.from_wire(wire | {"target_precision": 0.05}), worker)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    return report


@pytest.mark.parametrize("name", LAYERS)
def test_equal_kernels_are_not_told_apart_beside_a_warm_reference(worker: WorkerContext, name: str) -> None:
    reports: list[Any] = []
    for _ in range(JOBS):
        began = time.monotonic()
        report = judged(worker, name)
        reports.append(report)
        print(
            name,
            report.device.reference_runner,
            f"{report.device.held_s:.3f} s held, {report.device.windows_s:.3f} s windows",
            f"{time.monotonic() - began:.3f} s in all",
            report.speedup,
            worker.warm_reference.refusal or "kept",
        )
        worker.refill_pool()
    runners = [report.device.reference_runner for report in reports]
    assert runners == ["fresh", *["warm"] * (JOBS - 1)], worker.warm_reference.refusal
    apart = [report.speedup.ci_low > 1 or report.speedup.ci_high < 1 for report in reports if report.speedup]
    assert sum(apart) <= JOBS // 10


def test_a_warm_reference_takes_no_more_of_the_device_than_a_context(worker: WorkerContext) -> None:
    free = []
    for _ in range(8):
        judged(worker, "linear")
        worker.refill_pool()
        free.append(worker.device.free)
    warm = worker.warm_reference.warm
    assert warm is not None and warm.jobs == 8
    assert free[-3] - free[-1] < 512 << 20  # Less than one context; the pool itself moves by some 200 MiB.
