"""On a GPU, kernels of several streams take what they take elsewhere: their streams run beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

SLEEP = "torch.cuda._sleep(400_000)"
SEVERAL_STREAMS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.sides = [{maker}() for _ in range(2)]

    def forward(self, x):
        now = torch.cuda.current_stream()
        for side in self.sides:
            side.wait_stream(now)
            with {within}(side):
                {work}
        for side in self.sides:
            now.wait_stream(side)
        return x + 1

def get_inputs():
    return [torch.randn(1024, device="cuda")]
"""
ONE_STREAM = """
class Model(nn.Module):
    def forward(self, x):
        {work}
        return x + 1

def get_inputs():
    return [torch.randn(1024, device="cuda")]
"""
NAMED = {"maker": "torch.cuda.Stream", "within": "torch.cuda.stream"}
HIDDEN = {"maker": "getattr(torch.cuda, 'Str' + 'eam')", "within": "getattr(torch.cuda, 'str' + 'eam')"}


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with own_worker() as opened:
        opened.ceilings()
        yield opened


def judged(worker: Any, source: str) -> Report:
    wire = {"kernel": {"source_code": source, "kernel_type": "torch"}, "num_trials": 50, "timeout": 120}
    return run(Request.from_wire(wire), worker)


def time_ms(report: Report) -> float:
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None
    return report.outcome.timing.latency_ms


@pytest.mark.parametrize("names", [NAMED, HIDDEN], ids=["named", "hidden"])
@pytest.mark.parametrize("sleeps", [1, 2])
def test_streams_run_beside_each_other(worker: Any, names: dict[str, str], sleeps: int) -> None:
    work = "; ".join([SLEEP] * sleeps)
    alone, beside = (
        judged(worker, ONE_STREAM.format(work=work)),
        judged(worker, SEVERAL_STREAMS.format(work=work, **names)),
    )
    assert alone.device.multi_queue_roles == []
    print(f"{time_ms(alone)} ms, {time_ms(beside)} ms: {beside.device}, {beside.outcome.timing}")
    assert time_ms(beside) < 1.35 * time_ms(alone)
