"""The jobs that benchmarks send are what they are called."""

from __future__ import annotations

import pytest

from benchmarks import jobs
from domain.request import Request
from domain.result import Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext


def judged(worker: WorkerContext, body: jobs.Body) -> tuple[Status, bool]:
    wire = {"kernel": body.get("custom_kernel") or body["kernel"], "reference": body.get("ref_kernel")}
    request = Request.from_wire(wire | {"num_trials": 1, "timeout": 60})
    outcome = run(request, worker).outcome
    return outcome.status, outcome.compiled


def test_without_a_gpu_comparisons_are_of_pytorch(worker: WorkerContext) -> None:
    (body,) = jobs.comparisons(1, gpu=False, budget="quick")
    assert body["budget"] == "quick" and judged(worker, body) == (Status.PASSED, True)


@pytest.mark.parametrize("number", [0, 1])
def test_with_one_they_are_of_triton_and_cuda_in_turn(worker: WorkerContext, number: int) -> None:
    bodies = jobs.comparisons(4, gpu=True)
    assert [body["custom_kernel"]["kernel_type"] for body in bodies] == ["triton", "cuda", "triton", "cuda"]
    runs = number == 0 or worker.device.is_cuda
    assert judged(worker, bodies[number]) == (Status.PASSED if runs else Status.UNSUPPORTED, True)


def test_the_vector_addition_compiles_without_a_gpu(worker: WorkerContext) -> None:
    expected = Status.PASSED if worker.device.is_cuda else Status.UNSUPPORTED
    assert judged(worker, jobs.vector_add()) == (expected, True)


def test_no_two_have_the_same_source() -> None:
    every = [jobs.tiny()["kernel"], jobs.vector_add()["kernel"], jobs.vector_add()["kernel"]]
    every += [body["custom_kernel"] for body in jobs.comparisons(4, gpu=True) + jobs.comparisons(2, gpu=False)]
    assert len({kernel["source_code"] for kernel in every}) == len(every)


def test_groups_share_a_reference_and_have_defects_of_every_kind() -> None:
    bodies = jobs.groups(64, gpu=True, budget="quick")
    references = [body["ref_kernel"]["source_code"] for body in bodies]
    assert [references.count(source) for source in dict.fromkeys(references)] == [jobs.GROUP] * 4
    sources = [body["custom_kernel"]["source_code"] for body in bodies]
    assert len(set(sources)) == 64
    assert sum("1 << 40" in source or "1LL << 40" in source for source in sources) == 6
    assert 16 <= sum("1.0" in source for source in sources) <= 21
    types = {(body["custom_kernel"]["kernel_type"], body["custom_kernel"]["io"] is None) for body in bodies}
    assert types == {("triton", True), ("triton", False), ("cuda", False), ("torch_cuda", True)}


def test_a_group_without_a_gpu_has_the_verdicts_that_its_defects_give(worker: WorkerContext) -> None:
    bodies = jobs.groups(10, gpu=False, budget="quick")
    crashed = Status.CRASHED if not worker.device.is_cuda else Status.RUNTIME_ERROR
    expected = {1: Status.WRONG_RESULT, 4: Status.WRONG_RESULT, 6: Status.PASSED, 7: Status.WRONG_RESULT, 9: crashed}
    assert {number: judged(worker, bodies[number])[0] for number in expected} == expected
