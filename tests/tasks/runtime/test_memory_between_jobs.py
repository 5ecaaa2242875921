"""Whoever has the device next finds nothing of the last job in its memory."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from domain.fault import InfrastructureFault, JobCancelled
from domain.result import Status
from profiling.window.call_buffers import Slots
from sandbox.protocol.arena import HostArena
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.trials import Trials
from tasks.runtime.stream_isolation import Queues, RestartJob
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.consistency_checks import CrossChecks
from tests.tasks.judging import INPUTS, SOFTMAX, judged, kernel


def test_between_jobs_nothing_of_the_last_one_takes_memory(worker: WorkerContext) -> None:
    def layouts() -> list[Slots]:
        gc.collect()
        return [kept for kept in gc.get_objects() if type(kept) is Slots]

    before = layouts()
    assert judged(worker, kernel(SOFTMAX)).outcome.status is Status.PASSED
    assert not [kept for kept in layouts() if all(kept is not other for other in before)]


LARGE = 1 << 20

LARGE_INPUTS = f"\ndef get_inputs():\n    return [torch.randn({LARGE // 4 // 64}, 64)]\n"

FAILS_LATE = """
import itertools
calls = itertools.count()
class ModelNew(nn.Module):
    def forward(self, x):
        if next(calls) == 40:
            raise RuntimeError("enough")
        return torch.softmax(x, -1)
"""


@pytest.fixture
def left(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many large tensors of a job are there when it gives the device back."""
    begin, rest, found = CrossChecks.__init__, worker.release_job_memory, []

    def checked_as_on_a_card(checks: CrossChecks, *args: Any) -> None:
        begin(checks, *args)
        checks._is_cuda = True

    def large() -> int:
        every = gc.get_objects()
        arenas = {each.bytes.data_ptr() for each in every if type(each) is HostArena}  # Which a runner still has.
        storages: dict[int, int] = {}
        for each in every:
            if type(each) is torch.Tensor:
                with contextlib.suppress(RuntimeError):  # Another test's, which has no memory.
                    storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
        return sum(size >= LARGE for place, size in storages.items() if place not in arenas)

    monkeypatch.setattr(CrossChecks, "__init__", checked_as_on_a_card)
    monkeypatch.setattr(worker, "release_job_memory", lambda: (rest(), found.append(large() - before)))
    gc.collect()
    before = large()
    yield found


@pytest.mark.parametrize(
    ("compared", "candidate", "ends"),
    [
        (False, SOFTMAX, Status.PASSED),
        (True, SOFTMAX, Status.PASSED),
        (True, SOFTMAX.replace("torch.softmax(x, -1)", "torch.softmax(x, 0)"), Status.WRONG_RESULT),
        (True, FAILS_LATE, Status.RUNTIME_ERROR),
        (True, FAILS_LATE.replace('raise RuntimeError("enough")', "import os; os._exit(3)"), Status.CRASHED),
        (True, FAILS_LATE.replace("next(calls) == 40", "x.abs().max() > 50"), Status.RUNTIME_ERROR),
    ],
)
def test_whoever_has_the_device_next_finds_nothing_of_the_last_job_in_its_memory(
    worker: WorkerContext, left: list[int], compared: bool, candidate: str, ends: Status
) -> None:
    reference = kernel(SOFTMAX.replace(INPUTS, LARGE_INPUTS)) if compared else None
    judged_as = kernel(candidate.replace(INPUTS, LARGE_INPUTS))
    report = judged(worker, judged_as, reference, num_trials=6, strictness="robust")
    assert report.outcome.status is ends
    assert left == [0]
    assert (report.device.windows_s > 0) is (ends is not Status.WRONG_RESULT)


def test_nor_of_what_tools_were_given_nor_do_they_find_more(worker: WorkerContext, left: list[int]) -> None:
    weights = f"super().__init__()\n        self.w = nn.Parameter(torch.ones({LARGE // 4 // 64}, 64))"
    source = f"class Model(nn.Module):\n    def __init__(self):\n        {weights}\n    def forward(self, x):\n"
    source += f"        return self.w * x{LARGE_INPUTS}"
    report = judged(worker, kernel(source), kernel(source), sanitize=True)
    assert report.outcome.status is Status.PASSED and report.outcome.inputs["weights"]
    assert left == [2, 0], "a tool's call has the inputs and the weights"


def test_the_device_is_given_back_where_nothing_can_be_told_of_inputs(
    worker: WorkerContext, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(inputs: TrialInputs) -> bool:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(TrialInputs, "_sets_equal", no_memory)
    with pytest.raises(torch.OutOfMemoryError):
        judged(worker, kernel(SOFTMAX.replace(INPUTS, LARGE_INPUTS)))
    assert left == [0]


@pytest.mark.parametrize("raised", [InfrastructureFault("no room"), JobCancelled(), RestartJob(Queues())])
def test_nor_of_one_that_was_broken_off(
    worker: WorkerContext, left: list[int], monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    judge, windows = Trials.judge, itertools.count()

    def judge_some(rounds: Trials, *args: Any) -> None:
        if next(windows) == 3:
            raise raised
        judge(rounds, *args)

    monkeypatch.setattr(Trials, "judge", judge_some)
    source = kernel(SOFTMAX.replace(INPUTS, LARGE_INPUTS))
    if isinstance(raised, RestartJob):
        assert judged(worker, source, source).outcome.status is Status.PASSED
        assert left == [0, 0]
    else:
        with pytest.raises(type(raised)):
            judged(worker, source, source)
        assert left == [0]
