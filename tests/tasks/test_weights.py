"""What a comparison says of weights that have one value each, through the real pipeline on the CPU."""

from __future__ import annotations

import pytest
import torch

from domain.result import Status
from sandbox.replies import State
from tasks.weights import _constant
from tasks.workbench import Workbench
from tests.tasks.judging import INPUTS
from tests.tasks.test_what_is_told import judged, model

LINEAR = "self.l = nn.Linear(32, 32)"
IN_EVAL = "self.bn = nn.BatchNorm1d(32); self.eval()"


def told(bench: Workbench, layers: str, reference: str, candidate: str, own: str | None = None) -> str:
    """`inputs.weights` of a candidate that passes; with the reference's layers unless it has its own."""
    source = model(candidate, layers if own is None else own, "ModelNew")
    outcome = judged(bench, source, model(reference, layers) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    weights: str = outcome.inputs["weights"]
    return weights


@pytest.mark.parametrize("value", ["torch.ones(1)", "torch.tensor(1.0)"])
def test_a_scale_of_one_number_is_tried(bench: Workbench, value: str) -> None:
    layers = f"{LINEAR}; self.s = nn.Parameter({value})"
    ignored = told(bench, layers, "self.l(x) * self.s", "self.l(x)")
    assert "(s) the candidate no longer agrees" in ignored
    assert "(s) both still agree" in told(bench, layers, "self.l(x) * self.s", "self.s * self.l(x)")


def test_a_shift_of_one_zero_is_tried(bench: Workbench) -> None:
    layers = f"{LINEAR}; self.b = nn.Parameter(torch.tensor(0.0))"
    assert "(b) the candidate no longer agrees" in told(bench, layers, "self.l(x) + self.b", "self.l(x)")
    assert "(b) both still agree" in told(bench, layers, "self.l(x) + self.b", "self.b + self.l(x)")


STATISTICS = "(bn.weight, bn.bias, bn.running_mean, bn.running_var)"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("x * self.bn.weight + self.bn.bias", "the candidate no longer agrees"),
        ("(x - self.bn.running_mean) * self.bn.weight + self.bn.bias", "the candidate no longer agrees"),
        ("x / (self.bn.running_var + 1e-5).sqrt() * self.bn.weight + self.bn.bias", "the candidate no longer agrees"),
        ("self.bn(x) * 1", "both still agree"),
    ],
)
def test_running_statistics_are_tried(bench: Workbench, answer: str, says: str) -> None:
    assert f"{STATISTICS} {says}" in told(bench, IN_EVAL, "self.bn(x)", answer)


def test_in_training_mode_no_answer_depends_on_them(bench: Workbench) -> None:
    answer = "F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)"
    assert f"{STATISTICS} both still agree" in told(bench, "self.bn = nn.BatchNorm1d(32)", "self.bn(x)", answer)


@pytest.mark.parametrize(
    ("layers", "reference", "own", "candidate", "says"),
    [
        ("self.n = nn.LayerNorm(32)", "self.n(x)", "pass", "F.layer_norm(x, (32,))", "n.weight ones, n.bias zeros"),
        (f"{LINEAR}; nn.init.zeros_(self.l.bias)", "self.l(x)", LINEAR.replace(")", ", bias=False)"), "self.l(x)",
         "l.bias zeros"),
        (f"{LINEAR}; self.s = nn.Parameter(torch.ones(1))", "self.l(x) * self.s", LINEAR, "self.l(x)", "s one"),
        ("self.g = nn.Parameter(torch.full((32,), 0.1))", "x * self.g", "pass", "x * 0.1", "g 0.1"),
        (IN_EVAL, "self.bn(x)", "pass", "x / (1 + 1e-5) ** 0.5",
         "bn.weight ones, bn.bias zeros, bn.running_mean zeros, bn.running_var ones"),
    ],
)  # fmt: skip
def test_that_a_candidate_lacks_them_is_told(
    bench: Workbench, layers: str, reference: str, own: str, candidate: str, says: str
) -> None:
    weights = told(bench, layers, reference, candidate, own)
    assert weights.startswith("each its own, made under the same seed")
    assert f"of one value ({says}) could not be tried with others" in weights


def test_with_no_constant_ones_nothing_more_is_told(bench: Workbench) -> None:
    renamed = told(bench, LINEAR, "self.l(x)", "self.k(x)", LINEAR.replace("self.l", "self.k"))
    assert renamed == "each its own, made under the same seed"
    assert told(bench, LINEAR, "self.l(x)", "self.l(x)") == "the reference's, copied into the candidate"


def test_what_may_not_be_changed_is_left_alone() -> None:
    weights = {
        "drawn": torch.tensor(0.3),
        "whole": torch.ones(4, dtype=torch.int64),
        "none": torch.ones(0),
        "n.running_mean": torch.zeros(4, dtype=torch.int32),
        "n.running_var": torch.zeros(4),
        "n.num_batches_tracked": torch.tensor(0),
        "m.num_batches_tracked": torch.tensor(0.0),
        "m.running_var": torch.tensor([1.0, 2.0]),
        "mask": torch.ones(4, 4),
    }
    assert _constant(State(weights, frozenset({"drawn", "whole", "none"}))) == []
