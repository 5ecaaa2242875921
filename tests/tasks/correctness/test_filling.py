"""A round's inputs, written while the first window's calls are queued: on the host, where as few wait for a gate."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from domain.fault import KernelFault
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Report, Status
from profiling.results.samples import TimeRecord
from profiling.window.timed_window import Clock
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.timing_stage import Timekeeper
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
    monkeypatch.setattr(Timekeeper, "_fills_in_window", lambda *_: True)
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

    monkeypatch.setattr(Timekeeper, "_fills_in_window", lambda *_: at_once)
    monkeypatch.setattr(ContractInputs, "draw_ahead", fails)
    report = judged(worker, "y + x", compared=compared)
    owner = report.reference if compared else report.outcome
    assert owner is not None and owner.status is Status.UNSUPPORTED and owner.message == "no more of them"
    assert report.outcome.status is (Status.REFERENCE_FAILED if compared else Status.UNSUPPORTED)
    monkeypatch.undo()
    assert judged(worker, "y + x", compared=compared).outcome.status is Status.PASSED


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("streamed", [None, REFERENCE, CANDIDATE])
@pytest.mark.parametrize("by_contract", [False, True])
def test_inputs_are_written_once_a_round_and_behind_a_gate_if_by_the_referee(
    by_contract: bool, streamed: str | None, reverse: bool
) -> None:
    told: list[str] = []
    records = {role: TimeRecord(2, is_cuda=True, gated=role != streamed) for role in (REFERENCE, CANDIDATE)}
    turns = [CANDIDATE, REFERENCE] if reverse else [REFERENCE, CANDIDATE]

    def shoot(kernel_run: Any, *_: Any, meanwhile: Any, **how: Any) -> Any:
        told.append(kernel_run.role)
        if meanwhile is not None:
            meanwhile()
        return SimpleNamespace(elapsed_ms=1.0, setup_ms=0.1, call_ms=[])

    def null_windows(*_: Any) -> dict[str, Clock]:
        told.append("null")
        return dict.fromkeys(records, Clock(0.1, 0.1))

    def prepare_fill(_: Any) -> Any:
        told.append("seed")
        return lambda: told.append("fill")

    keeper: Any = SimpleNamespace(
        kernel_runs=[SimpleNamespace(role=role) for role in records],
        rounds=SimpleNamespace(
            prepare_fill=prepare_fill,
            judge=lambda *_: told.append("judge"),
            inputs=SimpleNamespace(contract=object() if by_contract else None),
        ),
        window_runner=SimpleNamespace(
            shuffle_allocations=lambda *_: told.append("relocate"), null_windows=null_windows, run=shoot
        ),
        _card=SimpleNamespace(take=lambda: None),
    )
    keeper._fills_in_window = lambda first: Timekeeper._fills_in_window(keeper, first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.timing.timing_stage.throttled", lambda reading: None)
        Timekeeper._round(keeper, {}, records, reverse=reverse, with_events=False)
    first, second = turns
    if by_contract and first != streamed:
        assert told == ["relocate", "seed", "null", first, "fill", second, "judge"]
    else:
        assert told == ["relocate", "seed", "fill", "null", first, second, "judge"]
