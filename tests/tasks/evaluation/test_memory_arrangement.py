"""A job whose calls are too large for the usual copies: its runners take turns, and the verdicts stay as strict."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from domain.fault import InfrastructureFault
from domain.flags.codes import FlagCode
from domain.result import Report, Status
from profiling.window.call_buffers import Slots
from sandbox.supervisor.session import Session
from tasks.runtime.stream_isolation import Queues
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import CHAIN, INPUTS, SOFTMAX, forward, judged, kernel

ONE_CALL, USUAL = "one_call", "usual"


@pytest.fixture(autouse=True)
def short_of_memory(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for the twelve copies of 16 KiB that two kernels take, and none for a second arena."""
    monkeypatch.setattr(worker, "usual_memory", 64 << 10)
    monkeypatch.setattr(type(worker.device), "free", 0)


def arrangement(report: Report) -> str:
    return str(report.device.memory_arrangement)


@pytest.mark.parametrize("budget", ["quick", "default"])
def test_equal_kernels_pass_in_turns(worker: WorkerContext, budget: str) -> None:
    slow = CHAIN.format("y")  # So that one call can be told from none.
    reference = kernel(f"class Model(nn.Module):\n    def forward(self, x):\n        {slow}{INPUTS}")
    report = judged(worker, forward(slow), reference, budget=budget)
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, ONE_CALL), report.outcome.message
    timing, comparison = report.outcome.timing, report.outcome.comparison
    assert timing is not None and timing.calls_per_window == 1
    assert comparison is not None and comparison.calls == comparison.calls_passed > 3
    assert report.outcome.inputs["fresh_sets"] > 3 and not report.outcome.inputs["inputs_not_random"]


def test_distributions_are_left_out_with_their_reason(worker: WorkerContext) -> None:
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX), budget="default")
    skipped = report.outcome.inputs["distributions"]["skipped"]
    assert {reason["code"] for reason in skipped.values()} == {FlagCode.DISTRIBUTION_INPUTS_TOO_LARGE}


def test_small_calls_that_are_judged_one_at_a_time_have_every_check(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are where kernels lacked memory, as a kernel may say that it did."""
    monkeypatch.setattr(worker, "usual_memory", 1 << 40)
    candidate, reference = forward("return torch.softmax(x, -1)"), kernel(SOFTMAX)
    usual = judged(worker, candidate, reference, budget="default", determinism=True)
    monkeypatch.setattr("tasks.evaluation.multi_process.initial_queues", lambda _: Queues(one_call=True))
    report = judged(worker, candidate, reference, budget="default", determinism=True)
    assert (arrangement(usual), arrangement(report)) == (USUAL, ONE_CALL)
    assert report.outcome.inputs["distributions"]["checked"] == usual.outcome.inputs["distributions"]["checked"]
    assert len(report.outcome.inputs["distributions"]["checked"]) > 3
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.determinism is not None and report.outcome.determinism.untested is None


def test_one_kernel_alone_is_judged_in_turns_with_the_null_runner(worker: WorkerContext) -> None:
    worker.usual_memory = 16 << 10
    report = judged(worker, kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, ONE_CALL)


def test_outputs_of_the_candidate_that_need_turns_are_noticed_after_its_first_call(worker: WorkerContext) -> None:
    worker.usual_memory = 12 * (8 << 10) + 12 * 1024
    report = judged(worker, forward("return x.repeat(1, 4)"), kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.WRONG_RESULT, ONE_CALL)


def test_small_calls_keep_their_arenas(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "usual_memory", 1 << 20)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, USUAL)


WRONG = {
    "one element": "y = torch.softmax(x, -1)\n        y[-1, -1] += 1\n        return y",
    "first output kept": """
        if not hasattr(self, "kept"):
            self.kept = torch.softmax(x, -1)
        return self.kept""",
    "inputs returned": "return x",
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_wrong_kernels_are_wrong_in_turns(worker: WorkerContext, body: str) -> None:
    report = judged(worker, forward(body), kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.WRONG_RESULT, ONE_CALL)


def contract(roles: dict[str, str]) -> dict[str, Any]:
    args = [
        {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": [64, 32], "dtype": "float32"}}
        for name, role in roles.items()
    ]
    return {"args": args}


def test_kernels_with_other_arguments_have_a_layout_each(worker: WorkerContext) -> None:
    writes = kernel(
        "def kernel_fn(x, out):\n    out.copy_(torch.softmax(x, -1))", io=contract({"x": "input", "out": "output"})
    )
    report = judged(worker, writes, kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, ONE_CALL), report.outcome.message


def test_outputs_that_need_turns_are_noticed_after_the_first_call(worker: WorkerContext) -> None:
    wide = "return x.repeat(1, 4)"
    worker.usual_memory = 12 * (8 << 10) + 12 * 1024  # Inputs fit together, outputs of 32 KiB do not.
    reference = kernel(f"class Model(nn.Module):\n    def forward(self, x):\n        {wide}{INPUTS}")
    report = judged(worker, forward(wide), reference)
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, ONE_CALL), report.outcome.message


def test_no_layout_of_the_forward_pass_is_left_when_both_passes_begin(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large call has room for one copy of its inputs, and none for that of an earlier call beside it."""
    first_calls, left, before = Session.start_probe, list[int](), {id(each) for each in gc.get_objects()}

    def noted(session: Session, *args: Any) -> None:
        left.append(sum(type(each) is Slots and id(each) not in before for each in gc.get_objects()))
        first_calls(session, *args)

    monkeypatch.setattr(Session, "start_probe", noted)
    linear = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.linear = "
    source = kernel(f"{linear}nn.Linear(32, 8)\n    def forward(self, x):\n        return self.linear(x){INPUTS}")
    report = judged(worker, source, source, gradients=True)
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, ONE_CALL), report.outcome.message
    assert left == [0, 0, 0, 0], "for each kernel: before the forward pass, and before both passes"


def test_one_arena_exists_at_a_time(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    held: set[int] = set()
    most: list[int] = []
    reserve, release = Session.reserve, Session.release

    def counted_reserve(session: Session, size: int) -> Any:
        arena = reserve(session, size)
        held.add(id(session))
        most.append(len(held))
        return arena

    def counted_release(session: Session) -> None:
        held.discard(id(session))
        release(session)

    monkeypatch.setattr(Session, "reserve", counted_reserve)
    monkeypatch.setattr(Session, "release", counted_release)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    assert report.outcome.status is Status.PASSED
    assert max(most[len(most) // 2 :]) == 1  # Once inputs are drawn and their size is known.


def test_the_next_job_is_judged_as_usual(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    monkeypatch.setattr(worker, "usual_memory", 1 << 30)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, USUAL)
    assert report.outcome.timing is not None and report.outcome.timing.calls_per_window > 1


def test_a_referee_without_memory_takes_turns_in_the_same_attempt(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "usual_memory", 1 << 40)
    monkeypatch.setattr(type(worker.device), "memory", 20 * 12 * 1024)  # So that turns would free much of it.
    reserve, asked = Session.reserve, []

    def full(session: Session, size: int) -> Any:
        asked.append(size)
        if len(asked) == 4:
            raise torch.OutOfMemoryError("device memory")
        return reserve(session, size)

    monkeypatch.setattr(Session, "reserve", full)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    assert (report.outcome.status, arrangement(report)) == (Status.PASSED, ONE_CALL), report.outcome.message


def test_a_referee_without_memory_for_small_calls_is_no_kernels_fault(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes hold the device: another attempt, perhaps elsewhere, may find it free."""
    monkeypatch.setattr(worker, "usual_memory", 1 << 40)

    def full(session: Session, size: int) -> Any:
        raise torch.OutOfMemoryError("device memory")

    monkeypatch.setattr(Session, "reserve", full)
    with pytest.raises(InfrastructureFault, match="for small calls"):
        judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))


def test_what_cannot_fit_names_what_it_needs(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "one_call_memory", 2 << 20)
    source = SOFTMAX.replace("64, 32", "1024, 1024")
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(source))
    assert report.reference is not None and report.reference.status is Status.OUT_OF_MEMORY
    assert "4 MiB of inputs" in (report.reference.message or "")
