"""Jobs with several cases on a card: CUDA contracts with symbols, and how long ten cases hold the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.schemas.request import read_compare
from domain.flags.codes import FlagCode
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

ADD = """
__global__ void add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < LIMIT) out[i] = x[i] + y[i];
}
"""
REFERENCE = (
    "def kernel_fn(x, y):\n    return x + y\n\ndef get_inputs(n):\n    return [torch.randn(n), torch.randn(n)]\n"
)


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


def compared(worker: WorkerContext, limit: str, grid: str, sizes: list[int], budget: str = "quick") -> Report:
    tensors: list[dict[str, Any]] = [
        {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": ["n"]}}
        for name, role in (("x", "input"), ("y", "input"), ("out", "output"))
    ]
    args = [*tensors, {"name": "n", "type": "int", "value": "n"}]
    io = {"args": args, "launch": {"grid": [grid], "block": [256]}}
    return run(
        read_compare(
            {
                "ref_kernel": {"kernel_type": "torch", "source_code": REFERENCE},
                "custom_kernel": {"kernel_type": "cuda", "source_code": ADD.replace("LIMIT", limit), "io": io},
                "cases": [{"n": size} for size in sizes],
                "budget": budget,
            }
        ),
        worker,
    )


def test_a_cuda_launch_follows_each_case(worker: WorkerContext) -> None:
    sizes = [1 << 16, 1000, 1 << 20, 33]
    report = compared(worker, "n", "cdiv(n, 256)", sizes)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None and codes(report.outcome.timing.flags)[0] is FlagCode.MEAN_OF_CASES
    assert [case["shapes"][0] for case in report.body("id")["cases"]] == [[size] for size in sizes]
    assert all(case["runtime_ms"] > 0 for case in report.body("id")["cases"])


@pytest.mark.parametrize(("limit", "grid"), [("n / 256 * 256", "cdiv(n, 256)"), ("n", "256")])
def test_a_cuda_kernel_for_some_sizes_only_is_wrong_in_the_others(worker: WorkerContext, limit: str, grid: str) -> None:
    report = compared(worker, limit, grid, [1 << 16, 1 << 20, 1000] if grid == "256" else [1 << 16, 1000])
    assert report.outcome.status is Status.WRONG_RESULT
    named = "n=1048576" if grid == "256" else "n=1000"
    assert (report.outcome.message or "").startswith(f"case '{named}': ")


def test_how_long_ten_cases_hold_the_device(worker: WorkerContext) -> None:
    sizes = [4096 + 256 * number for number in range(10)]
    for budget in ("quick", "default"):
        held = {}
        for count in (1, 10):
            reports = [compared(worker, "n", "cdiv(n, 256)", sizes[:count], budget) for _ in range(4)]
            assert all(report.outcome.status is Status.PASSED for report in reports)
            held[count] = min(report.device.held_s for report in reports[1:])
        print(f"{budget}: one case {held[1]:.3f} s, ten {held[10]:.3f} s, {held[10] / held[1]:.1f} times")
