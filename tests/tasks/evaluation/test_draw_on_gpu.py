"""Whole jobs on a card whose sources draw there, or need the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks.correctness.weight_sync import COPIED, OWN, SAME_SEED
from tasks.evaluation.pipeline import run
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

INPUTS = "\ndef get_inputs():\n    return [torch.randn(64, 32)]\n"
LAYERS = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {before}
        self.{first} = nn.Linear(32, 48)
        self.{second} = nn.Linear(48, 16)

    def forward(self, x):
        return self.{second}(torch.relu(self.{first}(x)))
"""
NEEDS_HOST = "torch.ones(2).numpy()"
BY_HAND = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for name, outputs, inputs in (("one", 48, 32), ("two", 16, 48)):
            weight, bias = nn.Parameter(torch.Tensor(outputs, inputs)), nn.Parameter(torch.Tensor(outputs))
            nn.init.kaiming_uniform_(weight, a=5**0.5)
            nn.init.uniform_(bias, -(inputs**-0.5), inputs**-0.5)
            self.register_parameter(name, weight)
            self.register_parameter(name + "_bias", bias)

    def forward(self, x):
        inner = torch.relu(nn.functional.linear(x, self.one, self.one_bias))
        return nn.functional.linear(inner, self.two, self.two_bias)
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


def model(name: str, first: str = "first", second: str = "second", before: str = "pass") -> dict[str, Any]:
    return source(LAYERS.format(name=name, first=first, second=second, before=before) + INPUTS)


def source(code: str) -> dict[str, Any]:
    return {"source_code": code, "kernel_type": "torch"}


def judged(worker: Any, candidate: dict[str, Any], reference: dict[str, Any] | None = None, **more: Any) -> Report:
    wire = {"kernel": candidate, "reference": reference, "num_trials": 20, "timeout": 120, "budget": "quick"}
    return run(Request.from_wire(wire | more), worker)


def places(report: Report) -> tuple[Any, Any, Any]:
    inputs = report.outcome.inputs
    return inputs["drawn_on"], inputs["constructed_on"], inputs.get("weights")


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (model("ModelNew"), ("device", "device", COPIED)),
        (model("ModelNew", "one", "two"), ("device", "device", SAME_SEED)),
        (model("ModelNew", before=NEEDS_HOST), ("device", "device", COPIED)),
        (model("ModelNew", "one", "two", NEEDS_HOST), ("host", "host", SAME_SEED)),
        (source(BY_HAND), ("host", "host", SAME_SEED)),
    ],
    ids=["alike", "other names", "on the host, alike", "on the host, other names", "torch.Tensor, other names"],
)
def test_both_sides_have_equal_weights(worker: Any, candidate: dict[str, Any], expected: tuple[str, ...]) -> None:
    report = judged(worker, candidate, model("Model"))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert places(report) == expected


def test_weights_that_a_constructor_scales_stay(worker: Any) -> None:
    scaled = model("ModelNew")
    last = "self.second = nn.Linear(48, 16)"
    scaling = f"{last}\n        with torch.no_grad(): self.second.weight.mul_(0.5), self.second.bias.mul_(0.5)"
    scaled["source_code"] = scaled["source_code"].replace(last, scaling)
    halved = model("Model")
    halved["source_code"] = halved["source_code"].replace("return self.second(", "return 0.5 * self.second(")
    report = judged(worker, scaled, halved)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert places(report) == ("device", "device", OWN)


def test_a_candidate_is_constructed_where_its_reference_had_to_be(worker: Any) -> None:
    report = judged(worker, model("ModelNew", "one", "two"), model("Model", before=NEEDS_HOST))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert places(report) == ("device", "host", SAME_SEED)


def test_the_way_back(worker: Any) -> None:
    report = judged(worker, model("ModelNew", "one", "two"), model("Model"), draw_on="host")
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert places(report) == ("host", "host", SAME_SEED)


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.from_numpy(np.sort(torch.rand(64, 32).numpy()))",
        "torch.rand(64, 32, generator=torch.Generator().manual_seed(torch.initial_seed()))",
        "torch.rand(64, 32).pin_memory()",
        "torch.rand(64, 32) + torch.ones(32, device='cpu')",
    ],
)
def test_sources_that_need_the_host_are_judged(worker: Any, drawn: str) -> None:
    inputs = f"\ndef get_inputs():\n    return [{drawn}]\n"
    forward = "import numpy as np\nclass {}(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)"
    report = judged(worker, source(forward.format("ModelNew")), source(forward.format("Model") + inputs))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.inputs["drawn_on"] == "host" and report.outcome.inputs["fresh_sets"] > 2


@pytest.mark.parametrize("draw_on", ["device", "host"])
def test_a_replay_has_the_same_inputs_and_weights(worker: Any, draw_on: str) -> None:
    told = LAYERS.format(name="Model", first="first", second="second", before="self.calls = 0").replace(
        "        return",
        "        self.calls += 1\n        if self.calls < 9:\n            print(float(x.double().sum()), "
        "float(self.first.weight.double().sum()))\n        return",
    )
    first = judged(worker, source(told + INPUTS), draw_on=draw_on).outcome
    assert first.inputs["drawn_on"] == draw_on and first.output.count("\n") >= 4
    again = judged(worker, source(told + INPUTS), draw_on=draw_on, replay_seed=first.inputs["replay_seed"]).outcome
    assert again.output.splitlines()[:4] == first.output.splitlines()[:4]


SETS = """
class Model(nn.Module):
    def forward(self, x, *, eps=1e-5):
        for _ in range(4): x = torch.cos(x) + eps
        return x

def get_inputs():
    with torch.no_grad():
        for rows in (4096, 333, 8192):
            {draw}
            yield [x]
"""


@pytest.mark.parametrize(
    ("draw", "drawn_on"),
    [
        ("x = torch.randn(rows, 512)", "device"),
        ("x = torch.randn(rows, 512, device='cuda')", "device"),
        ("x = torch.randn(rows, 512); rows != 8192 or x.numpy()", "host"),
    ],
    ids=["default device", "named device", "one set needs the host"],
)
def test_each_set_that_a_source_yields_is_a_case(worker: Any, draw: str, drawn_on: str) -> None:
    reference = SETS.format(draw=draw)
    candidate = reference.partition("def get_inputs")[0].replace("Model", "ModelNew")
    report = judged(worker, source(candidate), source(reference))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert [case["shapes"] for case in report.body("id")["cases"]] == [[[rows, 512]] for rows in (4096, 333, 8192)]
    assert all(case["runtime_ms"] > 0 for case in report.body("id")["cases"])
    assert report.outcome.inputs["drawn_on"] == drawn_on
    assert report.outcome.inputs["inputs_not_random"] is False
    wrong = candidate.replace("return x", "return x if len(x) != 333 else x + 1")
    report = judged(worker, source(wrong), source(reference))
    assert (report.outcome.message or "").startswith("case 'set 1': ")
