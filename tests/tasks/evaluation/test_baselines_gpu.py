"""The reference under torch.compile as a baseline, on a card."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from domain.request import Request
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.judging import kernel

pytestmark = pytest.mark.gpu

CHAIN = """
class Model(nn.Module):
    def forward(self, x):
        for _ in range(8):
            x = torch.cos(x) + 1
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(4096, 4096)]
"""
"""Seventeen launches that torch.compile fuses into one or two."""


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


@pytest.mark.parametrize("budget", ["quick", "default"])
def test_the_reference_itself_is_as_fast_as_eager_and_slower_than_compiled(worker: WorkerContext, budget: str) -> None:
    wire = {"kernel": kernel(CHAIN), "reference": kernel(CHAIN), "num_trials": 50, "timeout": 300, "budget": budget}
    body = run(Request.from_wire(wire | {"baselines": ["compile"]}), worker).body("j")
    eager, compiled = body["baselines"]
    print(budget, body["environment"]["device_seconds"], eager, compiled)
    assert body["verdict"] == "passed", body["kernel_exec_result"]["validation_error"]
    assert 0.9 < eager["speedup"]["ratio"] < 1.1
    assert compiled["unavailable"] is None and compiled["graph_breaks"] == 0
    assert compiled["speedup"]["verdict"] == "slower" and compiled["speedup"]["ratio"] < 0.5
