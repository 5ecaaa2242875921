"""A round's inputs, written while the first window's calls are queued: on the host, where as few wait for a gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.fault import KernelFault
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Report, Status
from profiling.results.samples import WindowSetup
from profiling.window.timed_window import Clock, Window
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tasks.timing import window_runner
from tasks.timing.window_runner import WindowRunner, run_round
from tests.kernel_windows import window
from tests.own_worker import own_worker
from validation.inputs.contract_inputs import ContractInputs

ADD = "class {name}(nn.Module):\n    def forward(self, x, y):\n        return {what}\n"
IO = {"args": [{"name": name, "type": "tensor", "role": "input", "tensor_spec": {"shape": [64, 32]}} for name in "xy"]}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as made:
        yield made


def judged(worker: WorkerContext, what: str, *, compared: bool) -> Report:
    def kernel(name: str, what: str) -> dict[str, Any]:
        return {"source_code": ADD.format(name=name, what=what), "kernel_type": "torch", "io": IO}

    reference = kernel("Model", "x + y") if compared else None
    wire = {"kernel": kernel("ModelNew" if compared else "Model", what), "reference": reference}
    return run(Request.from_wire(wire | {"num_trials": 5, "timeout": 30, "budget": "quick"}), worker)


@pytest.mark.parametrize("compared", [False, True])
def test_windows_run_over_what_is_written_while_calls_are_queued(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, compared: bool
) -> None:
    monkeypatch.setattr(window_runner, "fills_in_window", lambda *_, **__: True)
    report = judged(worker, "y + x", compared=compared)
    assert report.outcome.status is Status.PASSED
    assert report.outcome.inputs["reused_sets"] == 0 and not report.outcome.inputs["inputs_not_random"]
    if compared:
        assert judged(worker, "y + x + 1", compared=True).outcome.status is Status.WRONG_RESULT


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("compared", [False, True])
def test_what_goes_wrong_with_inputs_ends_the_job_alike(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, at_once: bool, compared: bool
) -> None:
    drawn = ContractInputs.draw_ahead
    asked: list[range] = []

    def fails(self: ContractInputs, numbers: range) -> range:
        asked.append(numbers)
        if len(asked) > 3:
            raise KernelFault(Status.UNSUPPORTED, "no more of them")
        return drawn(self, numbers)

    monkeypatch.setattr(window_runner, "fills_in_window", lambda *_, **__: at_once)
    monkeypatch.setattr(ContractInputs, "draw_ahead", fails)
    report = judged(worker, "y + x", compared=compared)
    owner = report.reference if compared else report.outcome
    assert owner is not None and owner.status is Status.UNSUPPORTED and owner.message == "no more of them"
    assert report.outcome.status is (Status.REFERENCE_FAILED if compared else Status.UNSUPPORTED)
    monkeypatch.undo()
    assert judged(worker, "y + x", compared=compared).outcome.status is Status.PASSED


class NotingRunner:
    """Runs no window, but notes the steps of a round."""

    def __init__(self, *, from_contract: bool) -> None:
        self.rounds = self
        self.inputs = SimpleNamespace(contract=object() if from_contract else None)
        self.noted: list[str] = []

    def shuffle_allocations(self, *_: Any) -> None:
        self.noted.append("shuffle")

    def prepare_fill(self, _: Any) -> Callable[[], None]:
        self.noted.append("seed")
        return lambda: self.noted.append("fill")

    def null_windows(self, slots: Any, setups: dict[str, WindowSetup]) -> dict[str, Clock]:
        self.noted.append("null")
        return dict.fromkeys(setups, Clock(0.1, 0.1))

    def run(self, kernel_run: Any, *_: Any, meanwhile: Callable[[], None] | None, **__: Any) -> Window:
        self.noted.append(kernel_run.role)
        if meanwhile is not None:
            meanwhile()
        return window(1.0)

    def judge(self, *_: Any) -> None:
        self.noted.append("judge")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("streamed", [None, REFERENCE, CANDIDATE])
@pytest.mark.parametrize("from_contract", [False, True])
def test_run_round_inputs_of_a_contract_are_written_behind_the_first_gate(
    from_contract: bool, streamed: str | None, reverse: bool
) -> None:
    setups = {role: WindowSetup(2, is_cuda=True, gated=role != streamed) for role in (REFERENCE, CANDIDATE)}
    first, second = [CANDIDATE, REFERENCE] if reverse else [REFERENCE, CANDIDATE]
    runner = NotingRunner(from_contract=from_contract)
    order: list[Any] = [SimpleNamespace(role=role) for role in (first, second)]
    windows, _ = run_round(
        cast(WindowRunner, runner), order, {}, setups, after_window=lambda: runner.noted.append("read card")
    )
    assert list(windows) == [first, second]
    if from_contract and first != streamed:
        filled = ["seed", "null", first, "fill", "read card"]
    else:
        filled = ["seed", "fill", "null", first, "read card"]
    assert runner.noted == ["shuffle", *filled, second, "read card", "judge"]
