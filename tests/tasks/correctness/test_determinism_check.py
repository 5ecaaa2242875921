"""Whether a kernel gives the same bits again: in a process, in another one, and beside other rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from domain.determinism import BatchVerdict, Determinism
from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Report, Status
from tasks.correctness import determinism_check
from tasks.correctness.determinism_check import batch_size
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import kernel

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).sum(dim=1)

def get_inputs():
    return [torch.randn(64, 999)]
"""
KERNEL = """
import os, torch
{before}
def kernel_fn(x):
    y = torch.relu(x)
    {body}

def get_inputs():
    return [torch.randn(64, 999)]
"""
IN_A_RANDOM_ORDER = """own = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))
    z = y[:, torch.randperm(999, generator=own)]
    return z[:, :333].sum(1) + z[:, 333:].sum(1)"""
SPLIT_BY_SIZE = "at = 333 if len(x) > 40 else 500\n    return y[:, :at].sum(1) + y[:, at:].sum(1)"
SCALED_BY_ALL = "scale = y.mean()\n    return (y / scale).sum(1) * scale"
SPLIT_BY_PROCESS = "return y[:, :AT].sum(1) + y[:, AT:].sum(1)"


def evaluated(worker: WorkerContext, body: str, before: str = "", **more: Any) -> Report:
    return run(wanted(kernel(KERNEL.format(before=before, body=body)), **more), worker)


def wanted(candidate: dict[str, Any], **more: Any) -> Request:
    settled = {"num_trials": 4, "timeout": 60, "budget": "quick", "determinism": True}
    return Request.from_wire({"kernel": candidate} | settled | more)


def found(report: Report) -> Determinism:
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.determinism is not None
    return report.outcome.determinism


def test_the_same_bits_in_all_calls_of_two_processes(worker: WorkerContext) -> None:
    reference = kernel(REFERENCE)
    determinism = found(evaluated(worker, "return y.sum(dim=1)", reference=reference))
    (output,) = determinism.outputs
    assert output.repeats and output.equal_across_processes is True
    assert determinism.processes == 2 and output.calls >= 2 * 16
    assert determinism.batch.verdict is BatchVerdict.INVARIANT
    assert determinism.batch.sizes == [32, 1] and determinism.batch.rows == 64
    assert not determinism.flags


def test_a_profile_is_made_beside_it(worker: WorkerContext) -> None:
    report = evaluated(worker, "return y.sum(dim=1)", reference=kernel(REFERENCE), profile=True)
    assert found(report).outputs[0].repeats
    assert report.outcome.launches is not None and report.outcome.launches.get("unavailable") is None


def test_a_kernel_of_long_calls_is_repeated_fewer_times(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(determinism_check, "CHECK_S", 4.0)
    determinism = found(evaluated(worker, "time.sleep(0.1)\n    return y.sum(dim=1)", before="import time"))
    assert determinism.untested is None and determinism.outputs[0].repeats
    assert 4 <= determinism.outputs[0].calls < 64
    assert determinism.batch.verdict is BatchVerdict.INVARIANT


def test_calls_that_exceed_the_check_are_told_by_its_own_limit(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(determinism_check, "CHECK_S", 0.5)
    determinism = found(evaluated(worker, "time.sleep(0.2)\n    return y.sum(dim=1)", before="import time"))
    assert determinism.untested == "its calls took more than the 0.5 s of this check"


SLOW_AFTER_REPEATS = """same = SEEN[0] is not None and torch.equal(SEEN[0], x)
    if SEEN[1] > 20 and not same:
        time.sleep(5)
    SEEN[:] = [x.clone(), SEEN[1] + same]
    return y.sum(dim=1)"""


def test_calls_on_other_rows_that_exceed_the_check_have_not_failed(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(determinism_check, "CHECK_S", 3.0)
    batch = found(evaluated(worker, SLOW_AFTER_REPEATS, before="import time\nSEEN = [None, 0]")).batch
    assert batch.verdict is BatchVerdict.UNTESTED
    assert batch.reason == "its calls took more than the 3 s of this check"


def test_fewer_outputs_for_fewer_rows_are_other_outputs(worker: WorkerContext) -> None:
    batch = found(evaluated(worker, "z = y.sum(dim=1)\n    return (z, z) if len(x) == 64 else (z,)")).batch
    assert batch.sizes == [] and batch.reason is not None and "the size is part of the task" in batch.reason


def test_a_sum_in_an_order_of_its_own_is_told(worker: WorkerContext) -> None:
    determinism = found(evaluated(worker, IN_A_RANDOM_ORDER))
    (output,) = determinism.outputs
    assert not output.repeats and output.differing_calls > output.calls // 2
    assert output.max_abs_diff is not None and 0 < output.max_abs_diff < 1e-2
    assert FlagCode.NOT_DETERMINISTIC in codes(determinism.flags)


@pytest.mark.parametrize("body", [SPLIT_BY_SIZE, SCALED_BY_ALL])
def test_rows_that_depend_on_their_batch_are_told(worker: WorkerContext, body: str) -> None:
    determinism = found(evaluated(worker, body))
    assert determinism.outputs[0].repeats
    assert determinism.batch.verdict is BatchVerdict.VARIANT and determinism.batch.differing_rows > 0
    assert codes(determinism.flags) == [FlagCode.BATCH_VARIANT]


def test_another_configuration_in_another_process_is_told(worker: WorkerContext) -> None:
    """Each process draws its own, as an autotuner may; both draw the same by chance, half of the time."""
    before = "AT = 300 + 100 * (os.urandom(1)[0] % 2)"
    tries = (found(evaluated(worker, SPLIT_BY_PROCESS, before)) for _ in range(30))
    other = next(one for one in tries if not one.outputs[0].repeats)
    assert other.outputs[0].differing_calls == 0 and other.outputs[0].equal_across_processes is False
    assert codes(other.flags) == [FlagCode.NOT_DETERMINISTIC]


@pytest.mark.parametrize(
    ("body", "reason"),
    [("return y.cumsum(0)[:, 0]", "depend on other rows"), ("return y.sum(0)", "no first dimension of the same size")],
)
def test_a_kernel_without_independent_rows_is_not_told_variant(worker: WorkerContext, body: str, reason: str) -> None:
    determinism = found(evaluated(worker, body))
    assert determinism.batch.verdict is BatchVerdict.UNTESTED
    assert determinism.batch.reason is not None and reason in determinism.batch.reason
    assert not determinism.flags


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return y.view(64, 999).sum(1)", "no batch of 32 was tried"),
        ("return y.sum(1) / len(x)", "the size is part of the task"),
    ],
)
def test_a_kernel_of_one_batch_size_is_tested_beside_other_rows(worker: WorkerContext, body: str, reason: str) -> None:
    determinism = found(evaluated(worker, body))
    assert determinism.batch.verdict is BatchVerdict.INVARIANT and determinism.batch.sizes == []
    assert determinism.batch.reason is not None and reason in determinism.batch.reason


def test_a_contract_fixes_the_batch(worker: WorkerContext) -> None:
    spec = {"shape": [64, 999], "dtype": "float32"}
    io = {"args": [{"name": "x", "type": "tensor", "role": "input", "tensor_spec": spec}]}
    source = "import torch\ndef kernel_fn(x):\n    return torch.relu(x).sum(1)\n"
    report = run(wanted(kernel(source, io=io)), worker)
    batch = found(report).batch
    assert batch.verdict is BatchVerdict.INVARIANT and batch.reason is not None and "contract" in batch.reason


def test_nothing_is_repeated_unasked_or_for_a_wrong_kernel(worker: WorkerContext) -> None:
    assert evaluated(worker, "return y.sum(1)", determinism=False).outcome.determinism is None
    reference = kernel(REFERENCE)
    wrong = evaluated(worker, "return y.sum(1) + 100", reference=reference)
    assert wrong.outcome.status is Status.WRONG_RESULT and wrong.outcome.determinism is None


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows"),
    [
        ([(8, 3)], [(8,)], 8),
        ([(8, 3), (3,)], [(8, 2), (8,)], 8),
        ([(8, 3)], [(8,), ()], None),
        ([(8, 3)], [(3,)], None),
        ([(1, 3)], [(1,)], None),
        ([(4,)], [], None),
    ],
)
def test_a_batch_is_the_first_dimension_of_all_outputs(
    inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], rows: int | None
) -> None:
    assert batch_size([torch.zeros(shape) for shape in inputs], [torch.zeros(shape) for shape in outputs]) == rows


def test_gradients_have_the_same_cotangents_in_each_process(worker: WorkerContext) -> None:
    """The scale of a job's cotangents is that of its own inputs, which each process draws anew."""
    source = """
import torch
def kernel_fn(x, small):
    return x * small.detach()
def get_inputs():
    return [torch.randn(64, 32), torch.exp2(-24 * torch.rand(1))]
"""
    request = wanted(kernel(source), reference=kernel(source), gradients=True, timeout=240)
    found = run(request, worker).outcome.determinism
    assert found is not None and found.processes == 2
    assert all(output.repeats for output in found.outputs) and len(found.outputs) == 2


TRAINED = """
import torch
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, factor):
        ctx.save_for_backward(x, weight, factor)
        return (x * weight * factor).sum(1)

    @staticmethod
    def backward(ctx, cotangent):
        x, weight, factor = ctx.saved_tensors
        rows = cotangent[:, None]
        {split}
        return rows * weight * factor, (rows * x * factor).sum(0), (rows * x * weight).sum()[None]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(99))
    def forward(self, x, factor):
        return Sum.apply(x, self.weight, factor)

def get_inputs():
    return [torch.randn(64, 99), torch.rand(1)]
"""


@pytest.mark.parametrize(
    ("split", "verdict"),
    [
        ("", BatchVerdict.INVARIANT),
        ("rows = rows if len(x) > 40 else rows * (1 + 2e-7)", BatchVerdict.VARIANT),
    ],
)
def test_gradients_of_rows_do_not_depend_on_the_batch_where_those_of_weights_do(
    split: str, verdict: BatchVerdict, worker: WorkerContext
) -> None:
    reference, candidate = (kernel(TRAINED.format(split=each)) for each in ("", split))
    request = wanted(candidate, reference=reference, gradients=True, timeout=240)
    batch = found(run(request, worker)).batch
    assert batch.verdict is verdict and batch.rows == 64 and batch.sizes == [32, 1]


def test_a_reference_that_an_earlier_check_ended_leaves_the_verdict(worker: WorkerContext) -> None:
    """It ended on inputs beyond its task, after the windows. A candidate can cause that, so the speed-up is unknown."""
    ends = "        if x.abs().max() > 100: os._exit(1)\n        return torch.relu"
    reference = REFERENCE.replace("import torch", "import os, torch", 1).replace("        return torch.relu", ends)
    candidate = kernel(KERNEL.format(before="", body="return y.sum(1)"))
    report = run(wanted(candidate, reference=kernel(reference), budget="default"), worker)
    assert "the reference made no inputs" in (found(report).untested or "")
    assert report.reference is not None and report.reference.status is Status.PASSED
    assert report.outcome.timing is not None and FlagCode.REFERENCE_NOT_RERUN in codes(report.outcome.timing.flags)
    assert report.speedup is None
