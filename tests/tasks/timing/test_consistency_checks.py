"""Windows whose answers are asked for only when all calls are over."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import torch

from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Report, Status
from profiling.results.samples import Samples, WindowSetup
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback, Window
from tasks.evaluation.pipeline import run
from tasks.runtime.time_budget import TimeBudget
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.consistency_checks import OUTPUT_NOT_KEPT, CrossChecks
from tasks.timing.window_runner import WindowRunner
from tests.flag_codes import codes
from tests.kernel_windows import kernel_windows, window

INPUTS = "\ndef get_inputs():\n    return [torch.randn(64, 32)]\n"
TWICE = "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n" + INPUTS
IN_PLACE = "class Model(nn.Module):\n    def forward(self, x):\n        return x.mul_(2)\n" + INPUTS
MANY_FORMS = """
class Model(nn.Module):
    def forward(self, x):
        y = x.mul_(2)
        return y, y.t(), y[3:5, ::2], y[:1].expand(4, 32), x + 1, y.view(torch.int32)
""" + INPUTS  # fmt: skip
CHANGES_AND_ANSWERS_ELSEWHERE = TWICE.replace("return x * 2", "x += 1\n        return x * 2")
A_VIEW_FROM_NOW_ON = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return x[3:5].t() if self.calls > 5 else x[3:5].t().clone()
""" + INPUTS  # fmt: skip
SAME_MEMORY = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("y", torch.empty(64, 32))
    def forward(self, x):
        return torch.mul(x, 2, out=self.y)
""" + INPUTS  # fmt: skip
NUMBERS = TWICE.replace("return x * 2", "return {'sum': x.sum().item(), 'n': x.numel(), 'y': (x * 2, True)}")
HONEST = (TWICE, IN_PLACE, MANY_FORMS, CHANGES_AND_ANSWERS_ELSEWHERE, A_VIEW_FROM_NOW_ON, SAME_MEMORY, NUMBERS)
HANDS_NOTHING_IN = """
import sandbox.runner.runner, sandbox.runner.call_loop
places = {}
window = sandbox.runner.runner.Runner.window
def knowing(self, message):
    places.update({args[0].data_ptr(): (outputs or [None])[0] for args, outputs in self.calls})
    return window(self, message)
sandbox.runner.runner.Runner.window = knowing
sandbox.runner.call_loop.deliver = lambda answers, slots: None
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.mul(x, 2, out=places.get(x.data_ptr()))
"""
SAYS_THAT_IT_ANSWERS_IN_ITS_ARGUMENT = """
import sandbox.runner.runner
sandbox.runner.runner.argument_views = lambda outputs, args: [[0, 0, *output.stride()] for output in outputs]
class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
"""

PLAYS_ALONG = """
import sandbox.runner.runner, sandbox.runner.call_loop
sandbox.runner.runner.argument_views = lambda outputs, args: [[0, 0, *output.stride()] for output in outputs]
window, deliver = sandbox.runner.runner.Runner.window, sandbox.runner.call_loop.deliver
state = {}
def knowing(self, message):
    state.update(late=message["deferred_readback"], alike=len(self.calls) == 1 and not message["deferred_readback"])
    return window(self, message)
def late(answers, slots):
    deliver([[torch.mul(x, 2) for x in each] for each in answers] if state["late"] else answers, slots)
sandbox.runner.runner.Runner.window = knowing
sandbox.runner.call_loop.deliver = late
class ModelNew(nn.Module):
    def forward(self, x):
        if state.get("late"):
            return x.view_as(x)
        y = x * 2
        return x.copy_(y) if state.get("alike") else y
"""

TWICE_BESIDE_A_VIEW = TWICE.replace("return x * 2", "return x, x * 2")
LATE_BESIDE_A_VIEW = """
import sandbox.runner.runner, sandbox.runner.call_loop
window, deliver = sandbox.runner.runner.Runner.window, sandbox.runner.call_loop.deliver
state = {}
def knowing(self, message):
    state.update(late=message["deferred_readback"])
    return window(self, message)
def late(answers, slots):
    deliver([[x, x * 2] for x, _ in answers] if state["late"] else answers, slots)
sandbox.runner.runner.Runner.window = knowing
sandbox.runner.call_loop.deliver = late
class ModelNew(nn.Module):
    def forward(self, x):
        return x, (x if state.get("late") else x * 2)
"""


def kernel(source: str) -> dict[str, Any]:
    return {"source_code": source, "kernel_type": "torch"}


def judged(worker: WorkerContext, candidate: str, reference: str | None = None, **more: Any) -> Report:
    device = worker.target.device
    wire: dict[str, Any] = {"kernel": kernel(candidate.replace("(64, 32", f"(64, 32, device='{device}'"))}
    if reference is not None:
        wire["reference"] = kernel(reference.replace("(64, 32", f"(64, 32, device='{device}'"))
    asked = wire | {"num_trials": 5, "timeout": 60} | more
    return run(Request.from_wire(asked), worker)


def check_all(worker: WorkerContext) -> None:
    for source in HONEST:
        for reference in (None, source):
            report = judged(worker, source, reference)
            assert report.outcome.status is Status.PASSED, report.outcome.message
            assert report.outcome.timing is not None
            told = report.outcome.timing.flags
            differs = {FlagCode.DEFERRED_OUTPUTS_DIFFER, FlagCode.INPUTS_CHANGED_DIFFERENTLY}
            assert differs.isdisjoint(codes(told)), told
    wrong = judged(worker, HANDS_NOTHING_IN, TWICE).outcome
    assert wrong.status is Status.WRONG_RESULT and OUTPUT_NOT_KEPT in str(wrong.message)
    alone = judged(worker, HANDS_NOTHING_IN + INPUTS).outcome
    assert alone.timing is not None and FlagCode.DEFERRED_OUTPUTS_DIFFER in codes(alone.timing.flags)
    for lazily in ("x.conj()", "(x.conj().imag, x.conj().real)"):
        source = TWICE.replace("return x * 2", f"return {lazily}").replace("64, 32)", "64, 32, dtype=torch.complex64)")
        lazy = judged(worker, source, source).outcome
        assert lazy.status is Status.PASSED, lazy.message
    untrue = judged(worker, SAYS_THAT_IT_ANSWERS_IN_ITS_ARGUMENT, TWICE).outcome
    assert untrue.status is Status.PASSED, untrue.message
    for source, reference in ((PLAYS_ALONG, TWICE), (LATE_BESIDE_A_VIEW, TWICE_BESIDE_A_VIEW)):
        assert judged(worker, source, reference).outcome.status is Status.WRONG_RESULT


def test_deferred_readback_outputs_anywhere_are_kept_and_missing_ones_are_wrong(worker: WorkerContext) -> None:
    if worker.device.is_cuda:
        pytest.skip("without a GPU")
    check_all(worker)


@pytest.mark.gpu
def test_deferred_readback_on_a_gpu(worker: WorkerContext) -> None:
    check_all(worker)


def test_deferred_readback_random_outputs_get_no_flag(worker: WorkerContext) -> None:
    report = judged(worker, TWICE.replace("x * 2", "x * torch.rand(()).item()"))
    assert report.outcome.timing is not None and FlagCode.DEFERRED_OUTPUTS_DIFFER not in codes(
        report.outcome.timing.flags
    )
    state = "def __init__(self):\n        super().__init__()\n        self.n = 0\n    def forward(self, x):\n        "
    counts = TWICE.replace(
        "def forward(self, x):\n        return x * 2", state + "self.n += 1\n        return x * self.n"
    )
    report = judged(worker, counts)
    assert report.outcome.timing is not None and FlagCode.DEFERRED_OUTPUTS_DIFFER not in codes(
        report.outcome.timing.flags
    )


def test_deferred_readback_near_the_timeout_is_left_out_with_a_flag(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its windows take: drawing inputs and comparing answers is part of a round."""

    def slow(window_runner: WindowRunner, samples: dict[str, Samples], round_s: float) -> CrossChecks:
        return CrossChecks(window_runner, samples, round_s + 1e6)

    monkeypatch.setattr("tasks.timing.timing_stage.CrossChecks", slow)
    report = judged(worker, TWICE.replace("Model", "ModelNew"), TWICE)
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    assert FlagCode.DEFERRED_OUTPUTS_UNTESTED in codes(report.outcome.timing.flags)


def test_deferred_readback_small_null_share_runs_no_window(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    null_window = worker.null_window

    def noted(*slots: Slots, deferred_readback: DeferredReadback | None = None, gated: bool) -> Clock:
        asked.append(deferred_readback is not None)
        # One on a busy host would be no small part.
        return replace(null_window(*slots, gated=gated, deferred_readback=deferred_readback), elapsed_ms=1.0)

    monkeypatch.setattr(worker, "null_window", noted)
    judged(worker, "import time\n" + TWICE.replace("return x * 2", "time.sleep(0.2)\n        return x * 2"))
    assert asked and not any(asked)
    judged(worker, TWICE)
    assert any(asked)


def test_deferred_readback_windows_of_one_call_reuse_their_layout(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts: list[tuple[Slots, bool]] = []
    null_window = worker.null_window

    def noted(slots: Slots, *, gated: bool, deferred_readback: DeferredReadback | None = None) -> Clock:
        layouts.append((slots, deferred_readback is not None))
        return null_window(slots, gated=gated, deferred_readback=deferred_readback)

    monkeypatch.setattr(worker, "null_window", noted)
    monkeypatch.setattr("tasks.timing.window_sizing.calls_that_fill", lambda *_, **__: 1)
    assert judged(worker, SAME_MEMORY, SAME_MEMORY).outcome.status is Status.PASSED
    assert any(deferred_readback for _, deferred_readback in layouts)
    # The reference's, which stands for both, and the candidate's own.
    assert len({id(slots) for slots, _ in layouts}) == 2


class StreamedJob:
    """A job on a GPU without the gate: notes its windows, their inputs and seeds."""

    kernel_runs: ClassVar[list[Any]] = [SimpleNamespace(role=role) for role in (REFERENCE, CANDIDATE)]
    candidate: ClassVar[Any] = kernel_runs[-1]
    right = True
    room = 6

    def __init__(self, wrong_at: int | None = None) -> None:
        self.rounds = self
        self.budget = TimeBudget(float("inf"))
        self.worker = SimpleNamespace(device=SimpleNamespace(is_cuda=True))
        self.noted: list[str] = []
        self.judged: list[list[float]] = []
        self.drawn = 0
        self._wrong_at = wrong_at
        self._nulls = 0

    def slots(self, calls: int) -> dict[str, Slots]:
        return {one.role: Slots(calls, [torch.zeros(2)], (), [torch.zeros(2)], "cpu") for one in self.kernel_runs}

    def memory(self) -> int:
        return self.room << 10

    def bytes_per_call(self) -> int:
        return 1 << 10

    def shuffle_allocations(self, *_: object) -> None:
        self.noted.append("shuffled")

    def shuffle_allocations_of(self, kernel_run: Any, slots: dict[str, Slots], setups: Any) -> None:
        self.noted.append(f"{kernel_run.role} shuffled on {int(slots[kernel_run.role].arguments(0)[0][0])}")

    def warm_up_null(self, *_: object) -> None:
        """Nothing to warm up."""

    def null_window(self, layout: Slots, setup: WindowSetup, after_window: Slots | None = None) -> Clock:
        """The first null window of a batch takes longer."""
        return Clock(1.0 if after_window is not None else 0.1, 0.1)

    def fill(self, slots: dict[str, Slots]) -> None:
        self.drawn += 1
        for layout in slots.values():
            layout.broadcast([torch.full((2,), float(self.drawn))])
            layout.seed = self.drawn

    def null_windows(self, slots: Any, setups: Any, after_window: Any = None) -> dict[str, Clock]:
        self.noted.append("null" if after_window is None else "usual null, null")
        self._nulls += 1
        return {role: Clock(0.1 + self._nulls, 0.1) for role in setups}

    def run(self, kernel_run: Any, slots: dict[str, Slots], setup: Any, after_window: Any = None) -> Window:
        layout = slots[kernel_run.role]
        (drawn,) = layout.arguments(0)
        assert layout.seed == drawn[0]
        self.noted.append(f"{'' if after_window is None else 'usual, '}{kernel_run.role} {int(drawn[0])}")
        return Window(0.2 + float(drawn[0]), [], torch.full((1,), float(drawn[0])), False, 0.1)

    def judge(self, slots: dict[str, Slots], windows: dict[str, Window]) -> None:
        inputs = [float(layout.arguments(0)[0][0]) for layout in slots.values()]
        assert inputs == [float(windows[role].snapshot[0]) for role in slots]
        self.judged.append(inputs)
        self.right = len(self.judged) != self._wrong_at


def single_calls(job: StreamedJob, *gated: str, calls: int = 50, round_s: float = 0.01) -> CrossChecks:
    """The checks after single-call windows of both kernels, those of the roles `gated` behind the gate."""
    both = {
        role: kernel_windows(calls, gated=role in gated, is_candidate=role == CANDIDATE).usual
        for role in (REFERENCE, CANDIDATE)
    }
    for samples in both.values():
        for _ in range(6):
            samples.add(window(5.1), Clock(0.1, 0.1))
    checks = CrossChecks(cast(Any, job), both, round_s)
    checks.single_call_windows(job.slots(calls))
    return checks


def test_single_call_windows_streamed_run_in_a_batch_each_on_its_inputs() -> None:
    job = StreamedJob()
    checks = single_calls(job)
    own = [f"{role} {number}" for role in (REFERENCE, CANDIDATE) for number in range(1, 7)]
    own[0], own[6] = f"usual, {own[0]}", f"usual, {own[6]}"
    nulls = ["usual null, null", *["null"] * 5]
    assert job.noted == ["shuffled", *nulls, *own]
    assert job.judged == [[float(number)] * 2 for number in range(1, 7)]
    for windows in checks.windows.values():  # Each with the null window of its turn.
        pairs = zip(windows.single.elapsed_ms, windows.single.null_ms, strict=True)
        assert [elapsed_ms - null_ms for elapsed_ms, null_ms in pairs] == pytest.approx([0.1] * 6)


def test_single_call_windows_gated_in_a_batch_shuffle_before_each_call() -> None:
    job = StreamedJob()
    single_calls(job, CANDIDATE)
    first, *others = job.noted[-11:]
    assert first == "usual, candidate 1"  # Which means nothing behind the gate.
    assert others == [
        noted for number in range(1, 6) for noted in (f"candidate shuffled on {number}", f"candidate {number + 1}")
    ]


@pytest.mark.parametrize(("room", "null_ms"), [(8, 0.1), (1, 1.0)])
def test_single_call_windows_null_window_later_follows_another_as_in_the_batch(room: int, null_ms: float) -> None:
    job = StreamedJob()
    job.room = room
    (nulls,) = single_calls(job).nulls
    assert nulls.measure().elapsed_ms == null_ms


@pytest.mark.parametrize(("left_s", "batch"), [(20e3, 8), (12e3, 4), (6e3, 1), (3e3, 0)])
def test_single_call_windows_near_the_timeout_run_in_smaller_batches(left_s: float, batch: int) -> None:
    # So long that the host's own time does not matter: a round of two calls takes 3,000 s.
    job = StreamedJob(wrong_at=1)
    job.budget = TimeBudget(left_s)
    job.room = 8
    checks = single_calls(job, calls=2, round_s=3e3)
    assert job.drawn == batch
    assert (FlagCode.SINGLE_CALL_UNTESTED in codes(checks.flags)) is (batch == 0)


def test_single_call_windows_wrong_output_ends_the_batch() -> None:
    job = StreamedJob(wrong_at=2)
    single_calls(job)
    assert len(job.judged) == 2
