"""A job that judges the sources of an earlier one again, on the CPU."""

from __future__ import annotations

from domain.request import Request
from domain.result import Speedup
from domain.speed.confirmation import FirstResult
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import forward, kernel

FIRST = FirstResult("first", Speedup(50.0, 49.0, 51.0, "faster"), "node7", None, "cpu")


CHAIN = "for _ in range(40): x = x.cos()\n        return x"
REFERENCE = f"class Model(nn.Module):\n    def forward(self, x):\n        {CHAIN}\n"
INPUTS = "def get_inputs():\n    return [torch.randn(256, 256)]\n"


def confirming(candidate: str) -> Request:
    wire = {"kernel": forward(candidate), "reference": kernel(REFERENCE + INPUTS), "num_trials": 5, "timeout": 60}
    return Request.from_wire(wire | {"confirms": FIRST.to_wire(), "target_precision": 0.5})


def test_a_speedup_that_was_luck_does_not_stand(worker: WorkerContext) -> None:
    body = run(confirming(CHAIN), worker).body("second")
    found = body["confirmation"]
    assert (body["verdict"], found["of"], found["first_speedup"]["ratio"]) == ("passed", "first", 50.0)
    assert (found["verdict_stands"], found["speedup_stands"]) == (True, False)
    assert found["finding"] in ("vanished", "smaller")
    assert found["another_device"] is None, "a CPU is no card"


def test_a_verdict_that_was_luck_does_not_stand(worker: WorkerContext) -> None:
    found = run(confirming("return x"), worker).body("second")["confirmation"]
    assert (found["verdict_stands"], found["finding"], found["together"]) == (False, "not_measured", None)


def test_other_jobs_confirm_nothing(worker: WorkerContext) -> None:
    report = run(Request.from_wire(confirming("return x").to_wire() | {"confirms": None}), worker)
    assert "confirmation" not in report.body("j")
