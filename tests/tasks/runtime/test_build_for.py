"""A service without a GPU compiles for the architecture that BUILD_FOR names, and judges what a compiler refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Outcome, Status
from domain.settings import settings
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return x @ x
def get_inputs():
    return [torch.randn(EXTENT, EXTENT)]
"""
CANDIDATE = """
import triton
import triton.language as tl

@triton.jit
def product(x, y, EXTENT: tl.constexpr):
    at = tl.arange(0, EXTENT)[:, None] * EXTENT + tl.arange(0, EXTENT)[None, :]
    tile = tl.load(x + at)
    tl.store(y + at, tl.dot(tile, tile, input_precision="ieee"))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        product[(1,)](x, y, EXTENT=x.shape[0])
        return y
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUILD_FOR", "sm_90")
        with own_worker() as made:
            yield made
    settings.cache_clear()


def outcome(worker: WorkerContext, extent: int, candidate: str = CANDIDATE) -> Outcome:
    kernels: dict[str, Any] = {
        "reference": {"source_code": REFERENCE.replace("EXTENT", str(extent)), "kernel_type": "torch"},
        "kernel": {"source_code": candidate, "kernel_type": "torch"},
    }
    return run(Request.from_wire({**kernels, "num_trials": 1, "timeout": 300, "budget": "quick"}), worker).outcome


def test_what_compiles_is_listed(worker: WorkerContext) -> None:
    found = outcome(worker, 16)
    assert found.status is Status.PASSED
    assert found.build["compiled_for"] == {
        "arch": "sm_90",
        "compiled": ["product"],
        "ended": "completed",
        "reason": None,
    }


def test_what_the_interpreter_accepts_and_the_compiler_refuses_is_a_compile_error(worker: WorkerContext) -> None:
    """A tensor core's product has at least 16 terms. The same candidate passes above, beside a larger reference."""
    found = outcome(worker, 8)
    assert found.status is Status.COMPILE_ERROR
    assert str(found.message).startswith("for sm_90: calling class ModelNew") and "K >= " in found.log


def test_a_way_that_only_a_gpu_takes_and_that_fails_is_flagged(worker: WorkerContext) -> None:
    other_way = "        if not x.is_cuda:\n            return x @ x\n"
    candidate = CANDIDATE.replace("        y = ", f"{other_way}        y = ").replace(
        "product[(1,)](", "product[(1,)](x, "
    )
    found = outcome(worker, 16, candidate)
    assert found.status is Status.PASSED and found.timing is not None
    (flag,) = (flag for flag in found.timing.flags if flag.code == FlagCode.GPU_BUILD_INCOMPLETE)
    assert flag.message.startswith(
        "for sm_90 nothing was compiled before its call ended: calling class ModelNew: TypeErr"
    )


FORGED = """
from backends.dry_run.child import DryRun
from backends.python.base import PythonBackend

class Forged(DryRun):
    facts = TOLD

PythonBackend._dry_run = lambda *_: Forged()
PythonBackend.facts = lambda *_: {"compiled_for": TOLD}
"""


@pytest.mark.parametrize("told", ["5", "{'ended': 'stopped', 'compiled': 5, 'arch': 'sm_1'}"])
def test_a_source_that_forges_what_its_builder_tells_harms_no_one_else(told: str, worker: WorkerContext) -> None:
    found = outcome(worker, 16, CANDIDATE + FORGED.replace("TOLD", told))
    assert found.status is Status.PASSED
    assert found.build["compiled_for"]["arch"] == "sm_90" and "reason" not in found.build["compiled_for"]


def test_a_source_that_forges_a_build_for_a_gpu_harms_no_one_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_FOR", raising=False)
    with own_worker() as without:
        found = outcome(without, 8, CANDIDATE + FORGED.replace("TOLD", "5"))
    assert found.status is Status.PASSED and found.build["compiled_for"] == 5
