"""Launches as CUPTI sees them, for every kernel type; and what is flagged about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.request import Request
from domain.result import Outcome, Report, Status
from tasks.evaluation.pipeline import run
from tests.flag_codes import codes
from tests.own_worker import own_worker
from tests.tasks.evaluation.test_pipeline_gpu import CUDA, IO, REFERENCE, TRITON, TRITON_IO, TYPES, kernel

pytestmark = pytest.mark.gpu

OWN = {"triton", "cuda", "torch_cuda", "multi_kernel"}
PRODUCT = (
    "class Model(nn.Module):\n    def forward(self, x):\n        return x @ x"
    "\ndef get_inputs():\n    return [torch.randn(2048, 2048, device='cuda', dtype=torch.bfloat16)]\n"
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


def judged(worker: Any, candidate: dict[str, Any], reference: dict[str, Any] | None = None, **more: Any) -> Report:
    wire = {"kernel": candidate, "reference": reference, "num_trials": 20, "timeout": 120, "profile": True} | more
    return run(Request.from_wire(wire), worker)


def launches(outcome: Outcome) -> dict[str, Any]:
    assert outcome.status is Status.PASSED, outcome
    assert outcome.launches is not None and outcome.launches.get("source") == "cupti", outcome.launches
    return outcome.launches


def right(source: dict[str, Any]) -> dict[str, Any]:
    return {**source, "source_code": source["source_code"].replace(" BUG", "")}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_told_what_it_launches(worker: Any, name: str) -> None:
    report = judged(worker, right(TYPES[name]), REFERENCE)
    told = launches(report.outcome)
    origins = {row["origin"] for row in told["kernels"]}
    assert told["streams"] == 1 and told["device_time_us"] > 0 and told["flags"] == []
    assert sum(row["share"] for row in told["kernels"]) == pytest.approx(1.0, abs=1e-6)
    assert not any("spin_kernel" in row["name"] for row in told["kernels"])
    assert ("custom" in origins) is (name.partition(",")[0] in OWN), told["kernels"]
    if name in ("triton", "cuda", "torch_cuda"):
        assert told["launches"] == 1 and told["custom_share"] == pytest.approx(1.0)
        assert "axpy" in told["kernels"][0]["name"]
    assert report.reference is not None
    theirs = launches(report.reference)
    assert theirs["custom_share"] == 0 and {row["origin"] for row in theirs["kernels"]} == {"other"}


DECOY = (
    TRITON.replace(" BUG", "")
    + "class ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return torch.add(x, y, alpha=2.5)\n"
)
ON_A_SIDE = """
import torch
side = None

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        global side
        side = side or torch.cuda.Stream()
        FORK
        with torch.cuda.stream(side):
            out = torch.add(x, y, alpha=2.5)
        JOIN
        return out
"""
FORK, JOIN = "side.wait_stream(torch.cuda.current_stream())", "torch.cuda.current_stream().wait_stream(side)"


def test_a_decoy_is_flagged_and_passes(worker: Any) -> None:
    outcome = judged(
        worker, kernel("import torch\n" + DECOY, "triton", metadata={"class_name": "ModelNew"}), REFERENCE
    ).outcome
    (flag,) = launches(outcome)["flags"]
    assert flag["code"] == FlagCode.KERNELS_NOT_FROM_SOURCE and "elementwise_kernel" in flag["message"]
    assert outcome.timing is not None and Flag.from_dict(flag) in outcome.timing.flags


def test_a_library_in_a_type_that_brings_its_own_is_flagged(worker: Any) -> None:
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x @ x\n"
    outcome = judged(worker, kernel(source, "torch_cuda"), kernel(PRODUCT)).outcome
    (flag,) = launches(outcome)["flags"]
    assert flag["code"] == FlagCode.KERNELS_NOT_FROM_SOURCE, flag
    assert flag["data"] == {"device_time_share": pytest.approx(1.0, abs=0.005), "kernel_type": "torch_cuda"}


def test_joined_streams_are_counted_and_not_flagged(worker: Any) -> None:
    source = ON_A_SIDE.replace("FORK", FORK).replace("JOIN", JOIN)
    assert launches(judged(worker, kernel(source), REFERENCE).outcome)["flags"] == []
    two = source.replace("return out", "return out + 0")
    assert launches(judged(worker, kernel(two), REFERENCE).outcome)["streams"] == 2


@pytest.mark.parametrize(("fork", "join"), [(FORK, "pass"), ("pass", JOIN), ("pass", "pass")])
def test_work_left_on_another_stream_is_flagged(worker: Any, fork: str, join: str) -> None:
    """In /evaluate, where nothing is compared: such work may be right by chance, and is wrong in most comparisons."""
    source = ON_A_SIDE.replace("FORK", fork).replace("JOIN", join)
    outcome = judged(worker, kernel(source, io={"args": IO["args"][:2]})).outcome
    (flag,) = launches(outcome)["flags"]
    assert flag["code"] == FlagCode.WORK_ON_OTHER_STREAMS
    assert outcome.timing is not None and Flag.from_dict(flag) in outcome.timing.flags


def test_less_arithmetic_than_the_references_is_flagged_and_passes(worker: Any) -> None:
    inputs = (
        "\ndef get_inputs():\n    on = dict(device='cuda', dtype=torch.bfloat16)\n"
        "    return [torch.randn(16384, 16384, **on) / 128, torch.randn(16384, 1, **on)]\n"
    )
    model = "class Model(nn.Module):\n    def forward(self, a, v):\n        return (a @ a) @ v"
    clever = model.replace("Model", "ModelNew").replace("(a @ a) @ v", "a @ (a @ v)")
    outcome = judged(worker, kernel(clever), kernel(model + inputs), profile=False, atol=0.05, rtol=0.05).outcome
    assert outcome.status is Status.PASSED, outcome
    assert outcome.timing is not None
    flags = [flag for flag in outcome.timing.flags if flag.code is FlagCode.TOO_FAST_FOR_ARITHMETIC]
    assert len(flags) == 1, outcome.timing
    (flag,) = flags
    assert "the reference's" in flag.message and flag.data["dtype"] == "bfloat16"


def test_a_raw_kernel_that_times_for_real_carries_no_flag_of_operations(worker: Any) -> None:
    outcome = judged(worker, kernel(CUDA.replace(" BUG", ""), "cuda", io=IO), REFERENCE).outcome
    assert outcome.timing is not None and FlagCode.TOO_FAST_FOR_ARITHMETIC not in codes(outcome.timing.flags)
    outcome = judged(worker, kernel(TRITON.replace(" BUG", ""), "triton", io=TRITON_IO)).outcome
    assert launches(outcome)["custom_share"] == pytest.approx(1.0)
