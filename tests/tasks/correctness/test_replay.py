"""The secret of a job, known to its owner afterwards, gives the same inputs and weights again."""

from __future__ import annotations

from typing import Any

import pytest
from marshmallow import ValidationError

from api.schemas.request import read_compare, read_evaluate
from domain.flags.codes import FlagCode
from domain.inputs import DrawOn
from domain.result import Outcome
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes

SOURCE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls < 9:
            print(float(x.double().sum()), float(self.linear.weight.double().sum()))
        return self.linear(x)
"""
INPUTS = "def get_inputs():\n    return [torch.randn(4, 8)]\n"
CONTRACT = {"args": [{"name": "x", "type": "tensor", "tensor_spec": {"shape": [4, 8], "dtype": "float32"}}]}


def evaluated(worker: WorkerContext, kernel: dict[str, Any], **more: Any) -> Outcome:
    request = read_evaluate({"kernel": kernel, "num_trials": 1, "timeout": 60, **more})
    # As a record keeps it between the API and a worker.
    return run(type(request).from_wire(request.to_wire()), worker).outcome


@pytest.mark.parametrize("more", [{"source_code": SOURCE + INPUTS}, {"source_code": SOURCE, "io": CONTRACT}])
def test_the_same_seed_gives_the_same_inputs_and_weights(worker: WorkerContext, more: dict[str, Any]) -> None:
    kernel = {"kernel_type": "torch", **more}
    first = evaluated(worker, kernel)
    seed = first.inputs["replay_seed"]
    assert isinstance(seed, str) and first.inputs["inputs_replayed"] is False
    again = evaluated(worker, kernel, replay_seed=seed)
    assert first.output.count("\n") == 8 and again.output == first.output
    assert again.inputs["inputs_replayed"] is True and again.inputs["replay_seed"] == seed
    assert again.timing is not None and FlagCode.INPUTS_REPLAYED in codes(again.timing.flags)
    assert first.timing is not None and FlagCode.INPUTS_REPLAYED not in codes(first.timing.flags)
    assert evaluated(worker, kernel).output != first.output


def test_a_wrong_answer_is_wrong_at_the_same_place_again(worker: WorkerContext) -> None:
    reference = {"kernel_type": "torch", "source_code": SOURCE + INPUTS}
    wrong = SOURCE.replace("Model(", "ModelNew(").replace("self.linear(x)", "self.linear(x) + (x > 2.5)")
    body: dict[str, Any] = {
        "ref_kernel": reference,
        "custom_kernel": {"kernel_type": "torch", "source_code": wrong},
        "num_trials": 1,
        "timeout": 60,
    }

    def compared(**more: Any) -> Outcome:
        return run(read_compare(body | more), worker).outcome

    # Known to have such an element in the first calls: 2.5 sigma is one element in 161.
    seed = next(one for one in map(str, range(1, 99)) if _early(compared(replay_seed=one)))
    assert _early(compared(replay_seed=seed)) == _early(compared(replay_seed=seed))


def _early(outcome: Outcome) -> dict[str, Any] | None:
    comparison = outcome.comparison
    return comparison.first_mismatch if comparison is not None and comparison.calls == 5 else None


@pytest.mark.parametrize("seed", ["", "xyz", "AB", "0x1", "a" * 65, 7, " 1"])
def test_what_is_no_seed_is_refused(seed: object) -> None:
    kernel = {"kernel_type": "torch", "source_code": SOURCE + INPUTS}
    with pytest.raises(ValidationError) as refused:
        read_evaluate({"kernel": kernel, "replay_seed": seed})
    assert "replay_seed" in refused.value.messages_dict


def test_without_a_gpu_both_places_to_draw_are_the_host(worker: WorkerContext) -> None:
    kernel = {"kernel_type": "torch", "source_code": SOURCE + INPUTS}
    first = evaluated(worker, kernel)
    assert (first.inputs["drawn_on"], first.inputs["constructed_on"]) == ("host", "host")
    again = evaluated(worker, kernel, draw_on="host", replay_seed=first.inputs["replay_seed"])
    assert again.output == first.output and again.inputs["drawn_on"] == "host"
    by_contract = evaluated(worker, {"kernel_type": "torch", "source_code": "def f(x): return x", "io": CONTRACT})
    assert (by_contract.inputs["drawn_on"], by_contract.inputs["constructed_on"]) == ("host", None)


@pytest.mark.parametrize("place", ["cuda", "", None, 3, "Host"])
def test_another_place_to_draw_is_refused(place: object) -> None:
    kernel = {"kernel_type": "torch", "source_code": SOURCE + INPUTS}
    with pytest.raises(ValidationError) as refused:
        read_evaluate({"kernel": kernel, "draw_on": place})
    assert "draw_on" in refused.value.messages_dict
    assert read_compare({"ref_kernel": kernel, "custom_kernel": kernel, "draw_on": "host"}).draw_on is DrawOn.HOST
