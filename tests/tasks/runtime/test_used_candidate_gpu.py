"""On a GPU `cuda` candidates have each other's context, and none is faster, slower or wrong for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.timing_cases import SPIN_ELEMENTS, spin
from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

JOBS = 20
FRESH, USED = {"process": "fresh"}, {"process": "used"}
REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return x + 1
"""
HEAD = 'extern "C" __global__ void add(const float* x, float* out, int n) {\n'
AT = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n"
RIGHT = "    out[i] = x[i] + 1;\n"


@pytest.fixture(scope="module")
def opened() -> Iterator[WorkerContext]:
    with own_worker() as worker:
        worker.ceilings()
        yield worker


@pytest.fixture
def worker(opened: WorkerContext, caplog: pytest.LogCaptureFixture) -> Iterator[WorkerContext]:
    caplog.set_level(logging.INFO)  # The log says why a context was not kept.
    # Also where kernels reach the host's memory, and the service would use no context twice.
    print("kernels reach their process's host memory:", opened.device.reaches_host_memory)
    opened.used_candidate.max_jobs = JOBS
    yield opened
    opened.refill_pool()
    opened.used_candidate.close()
    opened.used_candidate.max_jobs = 1


def compared(worker: WorkerContext, body: str = RIGHT, before: str = "", **more: Any) -> Report:
    io = spin(1)["io"]
    candidate = {"kernel_type": "cuda", "source_code": before + HEAD + AT + body + "}\n", "io": io}
    reference = {"kernel_type": "torch", "source_code": REFERENCE, "io": {"args": io["args"][:1]}}
    wire = {"kernel": candidate, "reference": reference, "num_trials": 20, "timeout": 20, "budget": "quick"}
    report = run(Request.from_wire(wire | {"target_precision": 0.05} | more), worker)
    worker.teardown.join()  # Its context is kept, or has ended.
    return report


def seen(report: Report) -> tuple[Status, dict[str, str] | None]:
    return report.outcome.status, report.device.isolation


def again(verdict: str) -> dict[str, str]:
    return FRESH | {"used_process_verdict": verdict}


@pytest.mark.parametrize("is_alone", [True, False])
def test_kernels_have_each_others_contexts_and_are_not_told_apart(worker: WorkerContext, is_alone: bool) -> None:
    reports: list[Report] = []
    kernel = spin(5_000)
    wire = {"kernel": kernel, "reference": None if is_alone else kernel, "num_trials": 20, "timeout": 60}
    for _ in range(JOBS):
        began = time.monotonic()
        reports.append(report := run(Request.from_wire(wire | {"budget": "quick"}), worker))
        held = f"{report.device.held_s:.3f} s held, {report.device.windows_s:.3f} s windows"
        print(report.device.isolation, held, f"{time.monotonic() - began:.3f} s in all", report.speedup)
        worker.refill_pool()
    assert [report.outcome.status for report in reports] == [Status.PASSED] * JOBS
    assert [report.device.isolation for report in reports] == [FRESH, *[USED] * (JOBS - 1)]
    apart = [report.speedup.ci_low > 1 or report.speedup.ci_high < 1 for report in reports if report.speedup]
    assert sum(apart) <= JOBS // 10


def test_other_kernels_pass_in_a_used_context_and_it_does_not_grow(worker: WorkerContext) -> None:
    free: list[int] = []
    for number in range(8):
        memory, use = f"__device__ float table{number}[1 << 20];\n", f"    table{number}[i] = x[i];\n"
        report = compared(worker, use + RIGHT, memory)
        assert report.outcome.status is Status.PASSED, report.outcome.message
        worker.refill_pool()
        warm = worker.used_candidate.warm
        assert warm is not None
        free.append(worker.device.free)
        print(report.device.isolation, free[-1] >> 20, "MiB free,", warm.device_bytes, "bytes before the first job")
    assert report.device.isolation == USED
    assert free[-3] - free[-1] < 512 << 20  # Less than one context; the pool itself moves by some 200 MiB.


def test_global_memory_of_an_earlier_kernel_is_gone(worker: WorkerContext) -> None:
    memory = f"__device__ float kept[{SPIN_ELEMENTS}];\n"
    assert seen(compared(worker, f"{RIGHT}    kept[i] = out[i];\n", memory)) == (Status.PASSED, FRESH)
    assert seen(compared(worker, "    out[i] = kept[i];\n", memory)) == (Status.WRONG_RESULT, again("wrong_result"))


LEAVE = {
    "device heap": "    if (i == 0) { volatile char* left = (volatile char*)malloc(64); if (left) left[0] = 1; }\n",
    "printed text": '    if (i == 0 && n < 0) printf("never");\n',
    "deep stacks": (
        "    volatile float deep[1024];\n    for (int at = 0; at < 1024; at += 64) deep[(at + i) % 1024] = x[i];\n"
        "    if (deep[i % 1024] > 1e30f) return;\n"
    ),
}


@pytest.mark.parametrize("left", LEAVE)
def test_a_context_in_which_a_kernel_leaves_something_is_not_kept(worker: WorkerContext, left: str) -> None:
    assert compared(worker, LEAVE[left] + RIGHT).outcome.status is Status.PASSED
    assert worker.used_candidate.warm is None
    assert seen(compared(worker)) == (Status.PASSED, FRESH)


FAIL = {
    "wrong_result": "    out[i] = x[i];\n",
    "runtime_error": "    out[i + (1ll << 40)] = x[i];\n",
    "timeout": '    while (true) asm volatile("");\n',
}


@pytest.mark.parametrize("verdict", FAIL)
def test_what_fails_in_a_used_context_fails_again_in_a_fresh_one(worker: WorkerContext, verdict: str) -> None:
    assert seen(compared(worker)) == (Status.PASSED, FRESH)
    report = compared(worker, FAIL[verdict], timeout=4)
    found = report.outcome.status.value
    assert found in (verdict, "crashed") and report.device.isolation == again(found), report.outcome.message
    assert worker.used_candidate.warm is None
    assert [seen(compared(worker)) for _ in range(2)] == [(Status.PASSED, FRESH), (Status.PASSED, USED)]


def test_a_used_context_gives_way_to_a_job_that_lacks_memory(worker: WorkerContext) -> None:
    compared(worker)
    warm = worker.used_candidate.warm
    assert warm is not None
    worker.end_idle_runners()
    assert not warm.runner.session.runner.alive
    assert seen(compared(worker)) == (Status.PASSED, FRESH)
