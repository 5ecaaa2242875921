"""What a comparison says of weights that have one value each, through the real pipeline on the CPU."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.request import Request
from domain.result import Outcome, Status
from sandbox.supervisor.messages import ModelState
from tasks.correctness import parameter_check
from tasks.correctness.parameter_check import constant
from tasks.correctness.weight_sync import COPIED, OWN
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.evaluation.test_explanations import judged, model, torch_kernel
from tests.tasks.judging import INPUTS

LINEAR = "self.l = nn.Linear(32, 32)"
IN_EVAL = "self.bn = nn.BatchNorm1d(32); self.eval()"


def last_code(outcome: Outcome) -> str:
    """Of `inputs.weight_findings`."""
    code: str = outcome.inputs["weight_findings"][-1]["code"]
    return code


def passing(
    worker: WorkerContext, layers: str, reference: str, candidate: str, own: str | None = None
) -> tuple[str, list[Flag]]:
    """`inputs.weights` and the findings of a candidate that passes; it has the reference's layers unless `own`."""
    source = model(candidate, layers if own is None else own, "ModelNew")
    outcome = judged(worker, source, model(reference, layers) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    return outcome.inputs["weights"], [Flag.from_dict(finding) for finding in outcome.inputs["weight_findings"]]


def told(worker: WorkerContext, layers: str, reference: str, candidate: str) -> str:
    """The message of a candidate that passes, and agrees with the reference under other weights."""
    _, findings = passing(worker, layers, reference, candidate)
    assert findings[-1].code is FlagCode.WEIGHTS_AGREE
    return findings[-1].message


def wrong(worker: WorkerContext, layers: str, reference: str, candidate: str) -> str:
    """The message of a candidate with those layers that is found wrong by other weights alone."""
    outcome = judged(worker, model(candidate, layers, "ModelNew"), model(reference, layers) + INPUTS).outcome
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.timing is None and last_code(outcome) == FlagCode.WEIGHTS_IGNORED
    message: str = outcome.message or ""
    assert message.startswith("Wrong with other values for weights that have one"), message
    return message


@pytest.mark.parametrize("value", ["torch.ones(1)", "torch.tensor(1.0)"])
def test_a_scale_of_one_number_is_tried(worker: WorkerContext, value: str) -> None:
    layers = f"{LINEAR}; self.s = nn.Parameter({value})"
    assert "(s)" in wrong(worker, layers, "self.l(x) * self.s", "self.l(x)")
    assert "(s) both still agree" in told(worker, layers, "self.l(x) * self.s", "self.s * self.l(x)")


def test_a_shift_of_one_zero_is_tried(worker: WorkerContext) -> None:
    layers = f"{LINEAR}; self.b = nn.Parameter(torch.tensor(0.0))"
    assert "(b)" in wrong(worker, layers, "self.l(x) + self.b", "self.l(x)")
    assert "(b) both still agree" in told(worker, layers, "self.l(x) + self.b", "self.b + self.l(x)")


STATISTICS = "(bn.weight, bn.bias, bn.running_mean, bn.running_var)"


@pytest.mark.parametrize(
    ("answer", "left_out"),
    [
        ("x / (1 + 1e-5) ** 0.5", STATISTICS),
        ("(x - self.bn.running_mean) / (1 + 1e-5) ** 0.5 * self.bn.weight + self.bn.bias", "(bn.running_var)"),
        ("x / (self.bn.running_var + 1e-5).sqrt() * self.bn.weight + self.bn.bias", "(bn.running_mean)"),
        ("F.batch_norm(x, self.bn.running_mean, self.bn.running_var, None, self.bn.bias)", "(bn.weight)"),
    ],
)
def test_who_leaves_running_statistics_out_is_wrong(worker: WorkerContext, answer: str, left_out: str) -> None:
    assert left_out in wrong(worker, IN_EVAL, "self.bn(x)", answer)


def test_who_uses_running_statistics_is_right(worker: WorkerContext) -> None:
    assert f"{STATISTICS} both still agree" in told(worker, IN_EVAL, "self.bn(x)", "self.bn(x) * 1")


OPERATOR = """
KEPT = {}
def define():
    if hasattr(torch.ops.kept, "norm"):
        return
    @torch.library.custom_op("kept::norm", mutates_args=())
    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        packed = KEPT.setdefault("packed", (weight.detach().clone(), bias.detach().clone()))
        return F.layer_norm(x, (32,), *packed)
"""
NORM = "self.n = nn.LayerNorm(32)"


@pytest.mark.parametrize(
    ("own", "answer"),
    [
        (f"{NORM}; self.g = self.n.weight.detach().clone(); self.b = self.n.bias.detach().clone()",
         "F.layer_norm(x, (32,), self.g, self.b)"),
        (f"{NORM}; self.packed = torch.stack([self.n.weight.detach(), self.n.bias.detach()])",
         "F.layer_norm(x, (32,)) * self.packed[0] + self.packed[1]"),
        (f"{NORM}; w = torch.ones(32); self.n.weight = nn.Parameter(w); self.w = w.clone()",
         "F.layer_norm(x, (32,), self.w, self.n.bias)"),
        ("self.n = nn.LayerNorm(32); w = torch.ones(32); self.w = w.clone(); self.n.weight = nn.Parameter(w)",
         "F.layer_norm(x, (32,), self.w, self.n.bias)"),
        ("self.n = nn.LayerNorm(32); w = torch.full((32,), 1.0); self.w = w * 1; self.n.weight = nn.Parameter(w * 1)",
         "F.layer_norm(x, (32,), self.w, self.n.bias)"),
        ("import numpy as np; self.n = nn.LayerNorm(32); w = np.ones(32, np.float32); self.n.weight = "
         "nn.Parameter(torch.tensor(w)); self.w = torch.from_numpy(w * 1)",
         "F.layer_norm(x, (32,), self.w, self.n.bias)"),
        (f"{NORM}; nn.init.constant_(self.n.weight, 1.0); self.w = self.n.weight.detach().clone()",
         "F.layer_norm(x, (32,), self.w, self.n.bias)"),
        (f"{NORM}; self.kept = dict()",
         "F.layer_norm(x, (32,), self.kept.setdefault('w', self.n.weight.detach().clone()), self.n.bias)"),
        (f"{NORM}; KEPT.setdefault('w', self.n.weight.detach().clone())",
         "F.layer_norm(x, (32,), KEPT['w'], self.n.bias)"),
    ],
    ids=["copied", "packed", "from a tensor", "before", "tensor", "array", "by init", "at first", "in the module"],
)  # fmt: skip
def test_who_copied_them_when_it_was_made_is_made_anew_and_right(worker: WorkerContext, own: str, answer: str) -> None:
    source = "KEPT = {}\n" + model(answer, own, "ModelNew")
    outcome = judged(worker, source, model("self.n(x)", NORM) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert outcome.timing is not None and last_code(outcome) == FlagCode.WEIGHTS_COPIED


def test_a_folded_norm_is_made_anew_and_right(worker: WorkerContext) -> None:
    layers = f"{LINEAR}; {IN_EVAL}"
    fold = "s = self.bn.weight / (self.bn.running_var + 1e-5).sqrt()"
    own = (
        f"{layers}; {fold}; self.w = (self.l.weight * s[:, None]).detach(); "
        "self.b = ((self.l.bias - self.bn.running_mean) * s + self.bn.bias).detach()"
    )
    source = model("F.linear(x, self.w, self.b)", own, "ModelNew")
    outcome = judged(worker, source, model("self.bn(self.l(x))", layers) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert last_code(outcome) == FlagCode.WEIGHTS_COPIED


ATTENTION = (
    "F.multi_head_attention_forward(x, x, x, 32, 4, self.a.in_proj_weight, torch.zeros(96), None, None, False, 0.0, "
    "self.a.out_proj.weight, None, training=False)[0]"
)


@pytest.mark.parametrize(
    ("layers", "reference", "candidate", "left_out"),
    [
        (NORM, "self.n(x)", "F.layer_norm(x, (32,))", "(n.weight, n.bias)"),
        (NORM, "self.n(x)", "F.layer_norm(x, (32,), self.n.weight)", "(n.bias)"),
        (f"{NORM}; self.m = nn.LayerNorm(32)", "self.m(F.relu(self.n(x)))",
         "F.layer_norm(F.relu(self.n(x)), (32,), None, self.m.bias)", "(m.weight)"),
        (f"{NORM}; self.m = nn.LayerNorm(32)", "self.m(F.relu(self.n(x)))",
         "F.layer_norm(F.relu(F.layer_norm(x, (32,))), (32,))", "(n.weight, n.bias, m.weight, m.bias)"),
        (f"{NORM}; self.m = nn.LayerNorm(32)", "self.m(F.relu(self.n(x)))",
         "F.layer_norm(self.n(x).relu(), (32,))", "(m.weight, m.bias)"),
        (f"{LINEAR}; self.g = nn.Parameter(1e-6 * torch.ones(32))", "x + self.g * self.l(x)", "x", "(g)"),
        ("self.p = nn.PReLU()", "self.p(x)", "F.leaky_relu(x, 0.25)", "(p.weight)"),
        ("self.a = nn.MultiheadAttention(32, 4)", "self.a(x, x, x)[0]", ATTENTION, "(a.in_proj_bias, a.out_proj.bias)"),
    ],
    ids=["both", "one", "one of two layers", "all of two", "one layer of two", "a layer scale", "a slope", "biases"],
)  # fmt: skip
def test_who_leaves_some_out_is_wrong(
    worker: WorkerContext, layers: str, reference: str, candidate: str, left_out: str
) -> None:
    assert left_out in wrong(worker, layers, reference, candidate)


@pytest.mark.parametrize(
    ("layers", "reference", "own", "candidate", "says"),
    [
        ("self.m = nn.Parameter(torch.ones(32), requires_grad=False)", "x * self.m", None,
         "torch.where(self.m > 0, x, 0 * x)", "gives them the same values each time"),
        (NORM, "self.n(x)", f"{NORM}; self.n.weight.data.fill_(1)", "F.layer_norm(x, (32,), None, self.n.bias)",
         "gives them the same values each time"),
        (NORM, "self.n(x)", f"{NORM}; define()", "torch.ops.kept.norm(x, self.n.weight, self.n.bias)",
         "might keep a copy"),
    ],
    ids=["a mask", "a constructor that says what they are", "an operator that keeps a copy"],
)  # fmt: skip
def test_without_evidence_it_is_told_and_no_verdict(
    worker: WorkerContext, layers: str, reference: str, own: str | None, candidate: str, says: str
) -> None:
    source = OPERATOR + model(candidate, layers if own is None else own, "ModelNew")
    outcome = judged(worker, source, model(reference, layers) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    (finding,) = outcome.inputs["weight_findings"]
    assert finding["code"] == FlagCode.WEIGHTS_INCONCLUSIVE and finding["message"].endswith(says)


BLOCKS = "self.b = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)) for _ in range(33))"
BRANCH = "self.d = nn.Linear(32, 32); self.s = nn.Parameter(torch.zeros(1)); nn.init.zeros_(self.d.weight)"


@pytest.mark.parametrize(
    ("layers", "reference", "candidate"),
    [
        (NORM, "self.n(x)", "F.layer_norm(x, (32,), self.n.weight.sqrt(), self.n.bias)"),
        (NORM, "self.n(x)", "F.layer_norm(x, (32,)) * self.n.weight[0] + self.n.bias"),
        (NORM, "self.n(x)", "(F.layer_norm(x, (32,)) + self.n.bias) * self.n.weight"),
        ("self.g = nn.GroupNorm(4, 32)", "self.g(x)",
         "F.group_norm(x, 4, self.g.weight[:8].repeat(4), self.g.bias[:8].repeat(4))"),
        (NORM, "self.n(x)",
         "F.layer_norm(x, (32,), self.n.weight.roll(1), self.n.bias)"),
        (BLOCKS, "sum(b(x) for b in self.b)", "sum(F.layer_norm(b[0](x), (32,)) for b in self.b)"),
        (BRANCH, "torch.tanh(x + self.s * F.linear(x, self.d.weight))", "torch.tanh(x)"),
    ],
    ids=["a root", "the first alone", "in the wrong order", "by place in the group", "the next", "many", "two zeros"],
)  # fmt: skip
def test_who_uses_them_wrongly_is_wrong(worker: WorkerContext, layers: str, reference: str, candidate: str) -> None:
    """Whether it is given them or made with them, which who packed them is right with."""
    outcome = judged(worker, model(candidate, layers, "ModelNew"), model(reference, layers) + INPUTS).outcome
    assert outcome.status is Status.WRONG_RESULT, outcome.inputs["weights"]
    assert last_code(outcome) == FlagCode.WEIGHTS_USED_DIFFERENTLY
    assert "each of the weights has its place in what the reference computes" in (outcome.message or "")


@pytest.mark.parametrize(
    "made",
    ["torch.empty(32).fill_(0.5)", "self.l.weight.detach().new_full((32,), 0.5)", "torch.linspace(0.5, 0.5, 32)",
     "torch.as_tensor([0.5] * 32)", "torch.from_numpy(np.array([0.5] * 32, np.float32))"],
)  # fmt: skip
def test_a_copy_of_what_a_parameter_is_made_of_is_right(worker: WorkerContext, made: str) -> None:
    layers = f"{LINEAR}; self.g = nn.Parameter(torch.full((32,), 0.5))"
    own = f"{LINEAR}; g = {made}; self.g = nn.Parameter(g.clone()); self.w = (self.l.weight * g[:, None]).detach()"
    source = "import numpy as np\n" + model("F.linear(x, self.w, self.g * self.l.bias)", own, "ModelNew")
    outcome = judged(worker, source, model("self.l(x) * self.g", layers) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert last_code(outcome) == FlagCode.WEIGHTS_COPIED


def test_one_number_for_all_of_a_layer_is_made_anew_once(worker: WorkerContext) -> None:
    layers = f"{LINEAR}; self.a = nn.Parameter(torch.ones(1) * 0.5)"
    own = f"{layers}; self.s = nn.Parameter(self.a.detach().expand(32).clone())"
    source = model("self.l(x) * self.s + self.a * x", own, "ModelNew")
    outcome = judged(worker, source, model("self.l(x) * self.a + self.a * x", layers) + INPUTS).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert last_code(outcome) == FlagCode.WEIGHTS_COPIED


def test_who_packed_them_wrongly_when_it_was_made_is_wrong(worker: WorkerContext) -> None:
    layers = f"{LINEAR}; {NORM}"
    packed = (
        "self.w = (self.l.weight * self.n.weight{}).detach(); "
        "self.b = (self.l.bias + self.l.weight @ self.n.bias).detach()"
    )
    ends = [
        judged(
            worker,
            model("F.linear(F.layer_norm(x, (32,)), self.w, self.b)", f"{layers}; {packed.format(by)}", "ModelNew"),
            model("self.l(self.n(x))", layers) + INPUTS,
        ).outcome.status
        for by in ("", "[:, None]")
    ]
    assert ends == [Status.PASSED, Status.WRONG_RESULT]


def test_who_fails_with_other_weights_has_failed(worker: WorkerContext) -> None:
    refuses = "_refuse(self.n.weight) or F.layer_norm(x, (32,))"
    source = "def _refuse(weight):\n    if weight.ne(1).any(): raise RuntimeError('only ones')\n" + model(
        refuses, NORM, "ModelNew"
    )
    outcome = judged(worker, source, model("self.n(x)", NORM) + INPUTS).outcome
    assert outcome.status is Status.RUNTIME_ERROR and outcome.timing is None
    assert "only ones" in (outcome.message or "") and "(n.weight, n.bias)" in (outcome.message or "")


def test_that_no_time_was_left_for_them_is_told(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter_check, "TRY_S", 1e6)
    outcome = judged(
        worker, model("F.layer_norm(x, (32,))", NORM, "ModelNew"), model("self.n(x)", NORM) + INPUTS
    ).outcome
    assert outcome.status is Status.PASSED and outcome.timing is not None
    assert Flag.of(FlagCode.CONSTANT_WEIGHTS_UNTESTED) in outcome.timing.flags and outcome.inputs[
        "weight_findings"
    ] == [asdict(Flag.of(FlagCode.CONSTANT_WEIGHTS_UNTESTED))]


def test_what_rounding_may_have_made_of_them_is_no_evidence() -> None:
    before, expected = torch.zeros(8), torch.ones(8)
    assert not parameter_check._differs_by_much([expected], [expected * 1.04], [before])
    assert parameter_check._differs_by_much([expected], [expected * 1.06], [before])
    assert parameter_check._differs_by_much([expected, expected], [expected, before], [before, before])
    one = torch.zeros(1000).index_fill(0, torch.tensor([3]), 0.3)
    assert parameter_check._differs_by_much([torch.ones(1000)], [torch.ones(1000) + one], [torch.zeros(1000)])
    assert not parameter_check._differs_by_much([expected], [expected * float("nan")], [before])


def test_in_training_mode_no_answer_depends_on_them(worker: WorkerContext) -> None:
    answer = "F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)"
    assert f"{STATISTICS} both still agree" in told(worker, "self.bn = nn.BatchNorm1d(32)", "self.bn(x)", answer)


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
    worker: WorkerContext, layers: str, reference: str, own: str, candidate: str, says: str
) -> None:
    weights, (finding,) = passing(worker, layers, reference, candidate, own)
    assert weights == "each its own, made under the same seed"
    assert finding.code is FlagCode.WEIGHTS_UNTESTED and f"({says})" in finding.message
    assert finding.data == {"constant_weights": says.count(",") + 1}


def test_with_no_constant_ones_nothing_more_is_told(worker: WorkerContext) -> None:
    renamed = passing(worker, LINEAR, "self.l(x)", "self.k(x)", LINEAR.replace("self.l", "self.k"))
    assert renamed == ("each its own, made under the same seed", [])
    assert passing(worker, LINEAR, "self.l(x)", "self.l(x)") == ("the reference's, copied into the candidate", [])


@pytest.mark.parametrize(
    ("change", "reference"),
    [
        ("self.l.weight.mul_(0.25), self.l.bias.mul_(0.25)", "self.l(x) / 4"),
        ("self.l.weight.copy_(self.l.weight.t().clone())", "x @ self.l.weight + self.l.bias"),
    ],
)
def test_weights_that_a_constructor_changes_under_the_references_names_stay(
    worker: WorkerContext, change: str, reference: str
) -> None:
    own = f"{LINEAR}\n        with torch.no_grad(): {change}"
    weights, _ = passing(worker, LINEAR, reference, "self.l(x)", own)
    assert weights == OWN
    source = model("self.l(x) * 1.5", own, "ModelNew")
    outcome = judged(worker, source, model(reference, LINEAR) + INPUTS).outcome
    assert outcome.status is Status.WRONG_RESULT and outcome.inputs["weights"] == COPIED


def test_that_the_weights_of_a_constructor_were_not_tried_is_told(worker: WorkerContext) -> None:
    own = f"{NORM}\n        with torch.no_grad(): self.n.weight.mul_(2)"
    weights, (finding,) = passing(worker, NORM, "self.n(x)", "self.n(x) / 2", own)
    assert weights == OWN and finding.code is FlagCode.WEIGHTS_UNTESTED
    assert "as the candidate is wrong with copies of them" in finding.message


@pytest.mark.parametrize("failure", ["1 / 0", "os._exit(3)"])
@pytest.mark.parametrize("place", ["constructor", "forward"])
def test_a_wrong_candidate_that_fails_when_made_again_stays_wrong(
    worker: WorkerContext, failure: str, place: str
) -> None:
    again = f"({failure}) if sys.made > 1 else 0"
    own = f"{LINEAR}\n        with torch.no_grad(): self.l.weight.mul_(0.5)"
    own += f"\n        {again}" if place == "constructor" else ""
    answer = f"self.l(x) * 1.5 + ({again})" if place == "forward" else "self.l(x) * 1.5"
    source = "import os, sys\nsys.made = getattr(sys, 'made', 0) + 1\n" + model(answer, own, "ModelNew")
    outcome = judged(worker, source, model("self.l(x)", LINEAR) + INPUTS).outcome
    assert outcome.status is Status.WRONG_RESULT and outcome.inputs["weights"] == COPIED
    assert "out of tolerance" in (outcome.message or "")


def test_layers_made_in_another_order_get_the_references_weights(worker: WorkerContext) -> None:
    layers = ["self.a = nn.Linear(32, 32)", "self.b = nn.Linear(32, 32)"]
    weights, _ = passing(worker, "; ".join(layers), "self.b(self.a(x))", "self.b(self.a(x))", "; ".join(layers[::-1]))
    assert weights == COPIED


def test_what_may_not_be_changed_is_left_alone() -> None:
    weights = {
        "table": torch.tensor(0.3),
        "whole": torch.ones(4, dtype=torch.int64),
        "none": torch.ones(0),
        "n.running_mean": torch.zeros(4, dtype=torch.int32),
        "n.running_var": torch.zeros(4),
        "n.num_batches_tracked": torch.tensor(0),
        "m.num_batches_tracked": torch.tensor(0.0),
        "m.running_var": torch.tensor([1.0, 2.0]),
        "mask": torch.ones(4, 4),
    }
    assert constant(ModelState(weights, frozenset({"whole", "none"}))) == []


def test_what_is_profiled_is_what_was_timed(worker: WorkerContext) -> None:
    copies = "self.w = self.n.weight.detach().clone(); self.b = self.n.bias.detach().clone()"
    own = f"{NORM}; {copies}; self.plain = bool((self.w == 1).all())"
    answer = "F.layer_norm(x, (32,)) if self.plain else F.layer_norm(x, (32,)).mul(self.w).add(self.b)"
    wire = {
        "kernel": torch_kernel(model(answer, own, "ModelNew")),
        "reference": torch_kernel(model("self.n(x)", NORM) + INPUTS),
        **{"num_trials": 1, "timeout": 60, "profile": True},
    }
    report = run(Request.from_wire(wire), worker)
    assert last_code(report.outcome) == FlagCode.WEIGHTS_COPIED
    assert report.outcome.launches is not None
    assert not any("mul" in each["name"] for each in report.outcome.launches["kernels"])
