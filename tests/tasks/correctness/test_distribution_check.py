"""Comparisons on inputs that no standard normal brings, through the real pipeline on the CPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.inputs import Strictness
from domain.request import Request
from domain.result import Report, RobustnessFailure, Status
from tasks.correctness import distribution_check
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.watching import WATCHING, stood_still_s
from validation.evidence.perturbation_bound import MOVE_SIGNS

NORMAL = "torch.randn(16, 64)"
ALL = ["uneven", "small", "shifted", "zeros", "outliers", "far below"]


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all are tried within the usual time depends on what else the machine has to do."""
    monkeypatch.setattr(distribution_check, "BUDGET_S", 40.0)


def model(name: str, forward: str, inputs: str | None = None) -> dict[str, Any]:
    source = f"class {name}(nn.Module):\n    def forward(self, x):\n        {forward}\n"
    if inputs is not None:
        source += f"def get_inputs():\n    return [{inputs}]\n"
    return {"source_code": source, "kernel_type": "torch"}


def judged(
    worker: WorkerContext,
    reference: str | dict[str, Any],
    candidate: str | dict[str, Any],
    inputs: str = NORMAL,
    strictness: Strictness = Strictness.ROBUST,
    **more: Any,
) -> Report:
    """Each a kernel, or the body of a `forward`. All inputs decide, unless a test is about those that do not."""
    wire = {
        "kernel": model("ModelNew", candidate) if isinstance(candidate, str) else candidate,
        "reference": model("Model", reference, inputs) if isinstance(reference, str) else reference,
        "num_trials": 1,
        "timeout": 60,
        "strictness": strictness,
    }
    return run(Request.from_wire(wire | more), worker)


def failures(report: Report) -> list[RobustnessFailure]:
    assert report.outcome.comparison is not None
    return report.outcome.comparison.robustness.failed


def distributions(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = report.outcome.inputs["distributions"]
    return found


def test_a_right_kernel_is_judged_on_all_of_them(worker: WorkerContext) -> None:
    report = judged(worker, "return torch.softmax(x, -1)", "return (x - x.logsumexp(-1, keepdim=True)).exp()")
    assert report.outcome.status is Status.PASSED, report.outcome.message
    # Its answers are so small that those to the drawn inputs are looked at once more, by their own size.
    assert distributions(report) == {"checked": ["drawn", *ALL], "skipped": {}, "unmodified_inputs": {}}
    assert report.outcome.timing is not None
    report = judged(worker, "return x * 2", "return x + x")
    assert distributions(report)["checked"] == ALL


NO_MAXIMUM = "e = x.exp(); return e / e.sum(-1, keepdim=True)"


def test_a_failure_beyond_the_task_stands_beside_the_pass_and_its_time(worker: WorkerContext) -> None:
    report = judged(worker, "return torch.softmax(x, -1)", NO_MAXIMUM, strictness=Strictness.TASK)
    outcome = report.outcome
    assert outcome.status is Status.PASSED and outcome.timing is not None and outcome.message is None
    assert outcome.comparison is not None and outcome.comparison.passed and outcome.comparison.mismatch_count == 0
    assert [failure.distribution for failure in failures(report)] == ["outliers", "far below"]
    _, failure = failures(report)
    assert failure.status is Status.WRONG_RESULT and failure.mismatch_count == failure.element_count == 16 * 64
    assert failure.first_mismatch is not None and failure.first_mismatch["actual"] == "nan"
    assert "Wrong on far below inputs" in failure.message
    (flag,) = [each for each in outcome.timing.flags if each.code is FlagCode.ROBUSTNESS_FAILED]
    assert flag.data == {"distributions": 2} and "outliers, far below" in flag.message
    body = report.body("j")["kernel_exec_result"]["comparison"]["robustness"]
    assert body["failed"][1]["status"] == "wrong_result"


@pytest.mark.parametrize(
    "inputs, where",
    [
        (f"F.dropout({NORMAL}, 0.3)", ["outliers"]),  # A zero is the maximum of the others.
        ("torch.randn(256, 16) * (torch.rand(256, 1) > 0.5)", ["outliers", "far below"]),
    ],
)
def test_inputs_with_zeros_go_beyond_the_task_too(worker: WorkerContext, inputs: str, where: list[str]) -> None:
    """Zeros stay where they are: a kernel may leave them out, and a softmax without its maximum still fails."""
    report = judged(worker, "return torch.softmax(x, -1)", NO_MAXIMUM, inputs, Strictness.TASK)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert [failure.distribution for failure in failures(report)] == where
    right = "z = x != 0; return x.clone().masked_scatter(z, x[z].cos()).where(z, 1.0)"
    report = judged(worker, "return x.cos()", right, inputs)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert distributions(report)["checked"] == ALL


ERRS_AFTERWARDS = """class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.errs = False
    def forward(self, x{more}):
        far = bool((x.mean(-1).abs() > 0.3).any())
        y = x + 1 if self.errs and not far else x.clone()
        self.errs = far{always}
        return y
"""


@pytest.mark.parametrize("always", ["", " or self.errs"], ids=["once", "always"])
@pytest.mark.parametrize("more", ["", ", b"], ids=["one input", "two inputs"])
def test_a_kernel_that_errs_after_a_varied_set_is_not_excused(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, more: str, always: str
) -> None:
    # It would guess one order of 70; of these it guesses one of 12,870.
    monkeypatch.setattr(distribution_check, "CONTROLS", 8)
    source = f"class Model(nn.Module):\n    def forward(self, x{more}):\n        return F.layer_norm(x, (1024,))\n"
    normal = "torch.randn(16, 1024)"
    inputs = f"def get_inputs():\n    return [{normal}{f', {normal}' if more else ''}]\n"
    report = judged(
        worker,
        {"source_code": source + inputs, "kernel_type": "torch"},
        {"source_code": ERRS_AFTERWARDS.format(more=more, always=always), "kernel_type": "torch"},
        strictness=Strictness.TASK,
        atol=0.3,
        rtol=0.3,
    )
    assert report.outcome.status is Status.WRONG_RESULT, distributions(report)
    assert "Wrong on uneven inputs" in (report.outcome.message or "")


def test_a_kernel_that_fails_on_purpose_guesses_the_first_independent_set_once_in_eight() -> None:
    drawn = 20_000
    places = Counter(distribution_check.control_order().index(False) for _ in range(drawn))
    assert max(places.values()) < 0.14 * drawn
    order = distribution_check.control_order()[-2 * distribution_check.CONTROLS :]
    assert sum(order) == distribution_check.CONTROLS == 4


def test_a_kernel_that_cannot_run_beyond_the_task_passes_and_is_asked_no_more(worker: WorkerContext) -> None:
    candidate = "assert x.abs().max() < 50, 'too far out'; return torch.softmax(x, -1)"
    report = judged(worker, "return torch.softmax(x, -1)", candidate, strictness=Strictness.TASK, profile=True)
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    (failure,) = failures(report)
    assert (failure.distribution, failure.status) == ("outliers", Status.RUNTIME_ERROR)
    assert "too far out" in failure.message and failure.first_mismatch is None
    assert distributions(report)["skipped"]["far below"]["code"] == FlagCode.DISTRIBUTION_KERNEL_FAILED


BY_TABLE = "return x * torch.ones(64, device=x.device)[x.abs().long()]"
"""Indexes a table by the size of its input, which outliers leave: on a card an assertion ends its context."""


def check_an_index_out_of_bounds(worker: WorkerContext) -> None:
    report = judged(worker, "return x * 1", BY_TABLE, strictness=Strictness.TASK)
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None, report.outcome.message
    (failure,) = failures(report)
    assert failure.distribution == "outliers" and failure.status in (Status.RUNTIME_ERROR, Status.CRASHED), failure
    again = judged(worker, "return x * 1", "return x + 0", strictness=Strictness.TASK)
    assert again.outcome.status is Status.PASSED and failures(again) == [], again.outcome.message


def test_an_index_out_of_bounds_beyond_the_task_is_told(worker: WorkerContext) -> None:
    check_an_index_out_of_bounds(worker)


@pytest.mark.gpu
def test_an_index_out_of_bounds_beyond_the_task_is_told_on_the_card(worker: WorkerContext) -> None:
    check_an_index_out_of_bounds(worker)


@pytest.mark.parametrize("strictness", Strictness)
def test_what_keeps_to_the_drawn_range_decides(worker: WorkerContext, strictness: Strictness) -> None:
    reference = "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)"
    right = "return x * (x.norm(dim=-1, keepdim=True).square() / x.shape[-1] + 1e-5).rsqrt()"
    wide = "torch.randn(4, 65536)"
    wrong = judged(worker, reference, "return x * 1.0", wide, strictness).outcome
    assert wrong.status is Status.WRONG_RESULT and wrong.timing is None
    assert "uneven inputs" in (wrong.message or "")
    report = judged(worker, reference, right, wide, strictness)
    assert report.outcome.status is Status.PASSED and failures(report) == [], report.outcome.message


def test_an_overflow_that_only_outliers_show_is_wrong_where_they_decide(worker: WorkerContext) -> None:
    report = judged(worker, "return torch.softmax(x, -1)", NO_MAXIMUM)
    outcome = report.outcome
    assert outcome.status is Status.WRONG_RESULT and outcome.timing is None and report.speedup is None
    assert "outliers inputs" in (outcome.message or "")
    assert outcome.comparison is not None and not outcome.comparison.passed
    assert outcome.comparison.first_mismatch is not None and outcome.comparison.first_mismatch["actual"] == "nan"
    assert report.reference is not None and report.reference.status is Status.PASSED


UNIFORM = "torch.rand(16, 256)"


@pytest.mark.parametrize(
    ("reference", "shortcut", "right", "tolerance"),
    [
        ("x.sum(-1, keepdim=True) * x", "128 * x", "x.double().sum(-1, keepdim=True).float() * x", 0.3),
        ("nn.functional.layer_norm(x, (256,))", "(x - 0.5) * 12**0.5",
         "(x - x.mean(-1, True)) * (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()", 0.3),
        ("torch.softmax(x, -1) * 256", "x.exp() / (math.e - 1)", "(x - x.logsumexp(-1, keepdim=True)).exp() * 256",
         0.1),
    ],
    ids=["a sum", "a norm", "a softmax"],
)  # fmt: skip
def test_what_is_so_of_uniform_noise_alone_is_wrong(
    worker: WorkerContext, reference: str, shortcut: str, right: str, tolerance: float
) -> None:
    """At a tolerance that lets the shortcut pass where inputs are drawn."""
    of_reference = model("Model", f"return {reference}", UNIFORM)

    def ended(candidate: str) -> Report:
        wire = {
            "kernel": model("ModelNew", f"return {candidate}"),
            "reference": of_reference,
            "atol": tolerance,
            "rtol": tolerance,
        }
        return run(Request.from_wire(wire | {"num_trials": 1, "timeout": 60}), worker)

    passed, wrong = ended(right), ended(shortcut)
    assert passed.outcome.status is Status.PASSED, passed.outcome.message
    assert distributions(passed)["checked"] == ["uneven"]
    assert wrong.outcome.status is Status.WRONG_RESULT, distributions(wrong)
    assert "uneven inputs" in (wrong.outcome.message or "")


BACKWARD = """
class {name}(nn.Module):
    def forward(self, x, y, g):
        {body}
def get_inputs():
    x, g = torch.randn(16, 64), torch.randn(16, 64)
    return [x, {given}, g]
"""


@pytest.mark.parametrize(
    ("given", "reference", "candidate", "ends"),
    [
        ("torch.tanh(x)", "return g * (1 - torch.tanh(x) ** 2)", "return g * (1 - y ** 2)", Status.PASSED),
        ("torch.randn(16, 64)", "return g * torch.softmax(x, -1) + y",
         "e = x.exp(); return g * e / e.sum(-1, keepdim=True) + y", Status.WRONG_RESULT),
    ],
)  # fmt: skip
def test_inputs_that_were_computed_of_each_other_are_not_changed_by_themselves(
    worker: WorkerContext, given: str, reference: str, candidate: str, ends: Status
) -> None:
    """A step backwards is given what its step forwards kept."""
    first, second = (
        {"source_code": BACKWARD.format(name=name, body=body, given=given), "kernel_type": "torch"}
        for name, body in (("Model", reference), ("ModelNew", candidate))
    )
    report = judged(worker, first, second)
    assert report.outcome.status is ends, report.outcome.message
    reasons = {reason["code"] for reason in distributions(report)["skipped"].values()}
    assert (FlagCode.DISTRIBUTION_INPUTS_RELATED in reasons) is (ends is Status.PASSED)


@pytest.mark.parametrize("candidate", ["e = x.exp(); y = e / e.sum(-1, keepdim=True)", "y = torch.softmax(x, -1)"])
def test_no_number_is_wrong_without_a_float64_run_too(worker: WorkerContext, candidate: str) -> None:
    """Where the reference has one each time, which names a dtype and so cannot be run in float64."""
    reference = "return torch.softmax(x, -1) @ torch.ones(64, 8, dtype=torch.float32).triu()"
    report = judged(worker, reference, f"{candidate}; return y @ torch.ones(64, 8).triu()")
    right = "softmax" in candidate
    assert report.outcome.status is (Status.PASSED if right else Status.WRONG_RESULT), distributions(report)


def test_a_number_that_is_drawn_keeps_no_evidence_away(worker: WorkerContext) -> None:
    """Every call has the first set's, so has what speaks for the reference."""
    inputs = "def get_inputs():\n    return [torch.randn(16, 64), random.uniform(2.0, 3.0)]\n"
    forward = "    def forward(self, x, alpha):\n        "
    reference = f"import random\nclass Model(nn.Module):\n{forward}return torch.softmax(x * alpha, -1)\n{inputs}"
    naive = f"class ModelNew(nn.Module):\n{forward}e = torch.exp(x * alpha); return e / e.sum(-1, keepdim=True)\n"
    torch_kernel = {"kernel_type": "torch"}
    report = judged(worker, torch_kernel | {"source_code": reference}, torch_kernel | {"source_code": naive})
    assert report.outcome.status is Status.WRONG_RESULT, distributions(report)
    assert "outliers inputs" in (report.outcome.message or "")


@pytest.mark.parametrize(
    ("reference", "candidate", "where"),
    [
        ("x.amax(-1)", "x.amax(-1).clamp(min=-20)", "far below"),
        (
            "x.softmax(-1)",
            "e = (x - x.amax(-1, keepdim=True).clamp(min=0)).exp(); y = e / e.sum(-1, keepdim=True)",
            "far",
        ),
        ("x.log_softmax(-1)", "x - x[:, :-1].logsumexp(-1, keepdim=True)", "outliers"),
    ],
)
def test_what_shows_far_from_zero_or_at_the_end_of_a_row(
    worker: WorkerContext, reference: str, candidate: str, where: str
) -> None:
    wide = "torch.randn(8, 4096)"
    body = candidate if "y =" in candidate else f"y = {candidate}"
    outcome = judged(worker, f"return {reference}", f"{body}; return y", wide).outcome
    assert outcome.status is Status.WRONG_RESULT and where in (outcome.message or ""), outcome.message


def test_the_scores_of_attention_are_far_below_zero_in_one_distribution(worker: WorkerContext) -> None:
    source = "class {name}(nn.Module):\n    def forward(self, q, k, v):\n        {forward}\n"
    inputs = "def get_inputs():\n    return [torch.randn(2, 32, 64) for _ in range(3)]\n"
    scores = (
        "s = q @ k.mT / 8; m = s.amax(-1, keepdim=True){}; e = (s - m).exp(); return e @ v / e.sum(-1, keepdim=True)"
    )
    reference = source.format(name="Model", forward="return F.scaled_dot_product_attention(q, k, v)") + inputs
    for begins, status in (("", Status.PASSED), (".clamp(min=0)", Status.WRONG_RESULT)):
        candidate = source.format(name="ModelNew", forward=scores.format(begins))
        of, against = ({"source_code": text, "kernel_type": "torch"} for text in (candidate, reference))
        outcome = judged(worker, against, of).outcome
        assert outcome.status is status, outcome.message


SOFTMAX = "return torch.softmax(x, -1)"
ROWS = "torch.randn(8, 4096)"
MASKED = "return x.masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), -1e9)"


@pytest.mark.parametrize(
    ("reference", "candidate", "inputs", "status"),
    [
        (
            SOFTMAX,
            "y = torch.softmax(x, -1); y[5, 777] = y[5, 776] * 3; return y",
            "torch.rand(8, 4096)",
            Status.WRONG_RESULT,
        ),
        (
            SOFTMAX,
            "y = torch.softmax(x, -1).clone(); y[:, 2048:] = 0; return y",
            "torch.rand(8, 4096)",
            Status.WRONG_RESULT,
        ),
        (SOFTMAX, "return torch.full_like(x, 1 / 4096)", "torch.rand(8, 4096)", Status.WRONG_RESULT),
        (SOFTMAX, "return torch.softmax(x, -1).bfloat16().float()", ROWS, Status.PASSED),
        (SOFTMAX, "return torch.softmax(x.half(), -1).float()", "torch.rand(8, 4096)", Status.PASSED),
        (MASKED, f"y = {MASKED[7:]}; return y.where(y < -9, y * 1.1)", "torch.randn(64, 64)", Status.WRONG_RESULT),
        (MASKED, MASKED.replace("x.m", "x.bfloat16().float().m"), "torch.randn(64, 64)", Status.PASSED),
        # Nothing but rounding is left below the tone: no scale of its own.
        (
            "return torch.fft.rfft(x).abs()",
            "e, o = torch.fft.fft(x[..., ::2]), torch.fft.fft(x[..., 1::2]); k = torch.arange(513); "
            "w = torch.exp(-2j * torch.pi * k / 1024); return (e[..., k % 512] + w * o[..., k % 512]).abs()",
            "torch.sin(2 * torch.pi * (37 * torch.arange(1024) / 1024 + torch.rand(8, 1))) * 32767",
            Status.PASSED,
        ),
    ],
)
def test_answers_that_any_would_be_right_beside_are_counted_by_their_own_size(
    worker: WorkerContext, reference: str, candidate: str, inputs: str, status: Status
) -> None:
    outcome = judged(worker, reference, candidate, inputs).outcome
    assert outcome.status is status, outcome.message
    assert status is Status.PASSED or "drawn inputs" in (outcome.message or "")


@pytest.mark.parametrize(
    ("candidate", "status"),
    [
        ("return x.exp() / (20_000 * 1.6487)", Status.WRONG_RESULT),
        (
            "return (x - x.amax(-1, keepdim=True)).exp() / (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)",
            None,
        ),
        ("return torch.softmax(x.bfloat16(), -1).float()", None),
    ],
)
def test_small_answers_count_by_their_own_size_on_uneven_inputs_too(
    worker: WorkerContext, candidate: str, status: Status | None
) -> None:
    """A sum over so many drawn numbers is as good as a constant, but not over rows of other scales."""
    outcome = judged(worker, SOFTMAX, candidate, "torch.randn(8, 20_000)", Strictness.TASK).outcome
    assert outcome.status is (status or Status.PASSED), outcome.message
    assert status is None or "uneven inputs" in (outcome.message or "")


def test_a_tolerance_that_is_named_stands_for_small_answers_too(worker: WorkerContext) -> None:
    wire = {
        "kernel": model("ModelNew", "return torch.full_like(x, 1 / 4096)"),
        "reference": model("Model", SOFTMAX, "torch.rand(8, 4096)"),
        "num_trials": 1,
        "atol": 1e-2,
        "timeout": 60,
    }
    report = run(Request.from_wire(wire), worker)
    assert report.outcome.status is Status.PASSED and "drawn" not in distributions(report)["skipped"]


def test_a_norm_of_zero_that_nothing_guards_is_wrong(worker: WorkerContext) -> None:
    outcome = judged(worker, "return F.normalize(x, dim=-1)", "return x / x.norm(dim=-1, keepdim=True)").outcome
    assert outcome.status is Status.WRONG_RESULT and "zeros inputs" in (outcome.message or "")
    outcome = judged(
        worker, "return F.normalize(x, dim=-1)", "return x / (x.norm(dim=-1, keepdim=True) + 1e-9)"
    ).outcome
    assert outcome.status is Status.PASSED, outcome.message
    # Neither guards it: what is 0/0 is asked of nobody.
    outcome = judged(worker, "return x / x.norm(dim=-1, keepdim=True)", "return F.normalize(x, dim=-1)").outcome
    assert outcome.status is Status.PASSED, outcome.message


def test_a_kernel_that_fails_where_the_reference_is_right_has_failed(worker: WorkerContext) -> None:
    candidate = "assert x.abs().max() < 50, 'too far out'; return torch.softmax(x, -1)"
    outcome = judged(worker, "return torch.softmax(x, -1)", candidate).outcome
    assert outcome.status is Status.RUNTIME_ERROR and outcome.timing is None
    assert "too far out" in (outcome.message or "") and "inputs" in (outcome.message or "")


def test_on_the_host_the_kernel_does_not_run_beside_the_reference(worker: WorkerContext) -> None:
    """Else it could have the reference be late on a distribution, or in float64, and get out of it."""
    slow = "import time; time.sleep(0.3 if x.abs().max() > 60 else 0); return torch.softmax(x, -1)"
    candidate = model("ModelNew", "e = x.exp(); return e / e.sum(-1, keepdim=True)")
    candidate["source_code"] = WATCHING + candidate["source_code"]
    # So many elements that the exponential of some leaves float32's range.
    outcome = judged(worker, slow, candidate, "torch.randn(16, 4096)").outcome
    assert outcome.status is Status.WRONG_RESULT and "outliers inputs" in (outcome.message or "")
    # Of its reference's calls the last may end with its process, before its thread has come to say so.
    assert stood_still_s(outcome.output) >= 0.3 * (1 + len(MOVE_SIGNS))


def test_where_the_reference_overflows_itself_nothing_is_said_against_the_kernel(worker: WorkerContext) -> None:
    inputs = "torch.randn(16, 4096)"
    report = judged(worker, "return x.exp().sum(-1)", "return x.double().exp().sum(-1).clamp(max=1e30).float()", inputs)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    why = distributions(report)["skipped"]["outliers"]
    assert why["code"] == FlagCode.DISTRIBUTION_REFERENCE_UNSOUND and "leaves the range" in why["message"]


def test_a_reference_that_fails_there_costs_the_job_nothing(worker: WorkerContext) -> None:
    reference = "assert x.abs().max() < 50, 'not mine'; return x * 2"
    report = judged(worker, reference, "return x + x")
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    why = distributions(report)["skipped"]["outliers"]
    assert why["code"] == FlagCode.DISTRIBUTION_REFERENCE_UNSOUND and "not mine" in why["message"]
    assert "small" in distributions(report)["checked"]
    assert report.reference is not None and report.reference.status is Status.PASSED


@pytest.mark.parametrize(
    ("inputs", "says", "varied"),
    [
        ("torch.rand(16, 64) * 3", "one sign", ["uneven"]),
        ("torch.rand(16, 64) * 2 - 1", "bounded", ["uneven"]),
        ("torch.randn(16, 64).sign()", "few distinct", []),
        ("torch.randn(1024).sort().values", "sorted", ["uneven"]),
        ("torch.randn(64, 64).tril()", "lower triangular", ["uneven"]),
        ("torch.full((16, 64), 0.5)", "few distinct", []),
    ],
)
def test_inputs_that_mean_something_vary_within_what_they_mean(
    worker: WorkerContext, inputs: str, says: str, varied: list[str]
) -> None:
    # Right for these inputs, for others not.
    report = judged(worker, "return x.clamp(-9, 9)", "return x", inputs)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    found = distributions(report)
    assert found["checked"] == varied and says in found["unmodified_inputs"]["input 0"]
    assert {why["code"] for why in found["skipped"].values()} == {FlagCode.DISTRIBUTION_INPUTS_UNCHANGED}


def contract(**init: Any) -> dict[str, Any]:
    spec = {"shape": [16, 64], "dtype": "float32", "init": init}
    return {"args": [{"name": "x", "type": "tensor", "role": "input", "tensor_spec": spec}]}


@pytest.mark.parametrize(
    ("init", "status"),
    [
        ({"kind": "randn"}, Status.WRONG_RESULT),
        ({"kind": "uniform", "low": -4, "high": 4}, Status.PASSED),
        ({"kind": "full", "fill_value": 3}, Status.PASSED),
    ],
)
def test_of_a_contract_only_normals_are_changed(worker: WorkerContext, init: dict[str, Any], status: Status) -> None:
    reference = model("Model", "return x.clamp(-20, 20)") | {"io": contract(**init)}
    report = judged(worker, reference, "return x")
    assert report.outcome.status is status, (report.outcome.message, report.outcome.inputs)
    if status is Status.PASSED:
        assert "x" in distributions(report)["unmodified_inputs"]


def test_without_a_float64_run_the_harsher_ones_accuse_nobody(worker: WorkerContext) -> None:
    # A multi_kernel reference has no float64 form.
    reference = {
        "source_code": "def main(x):\n    return torch.softmax(x, -1)\n",
        "kernel_type": "multi_kernel",
        "metadata": {"entry_point": "main"},
        "io": contract(kind="randn"),
    }
    report = judged(worker, reference, "return torch.softmax(x.clamp(-20, 20), -1)")
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert distributions(report)["skipped"]["outliers"]["code"] == FlagCode.DISTRIBUTION_NO_FLOAT64
    # What the others show is evidence enough: the second kernel takes every row's maximum for positive.
    no_maximum = "return torch.softmax(x - x.amax(-1, keepdim=True).clamp(min=0), -1) * (x.mean() > -1)"
    wrong = judged(worker, reference, no_maximum).outcome
    assert wrong.status is Status.WRONG_RESULT and "shifted" in (wrong.message or "")


def test_evaluating_alone_has_no_other_distributions(worker: WorkerContext) -> None:
    wire = {"kernel": model("Model", "return x * 2", NORMAL), "num_trials": 1, "timeout": 60}
    report = run(Request.from_wire(wire), worker)
    assert report.outcome.status is Status.PASSED and "distributions" not in report.outcome.inputs


NORM = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        {init}

    def forward(self, x):
        {forward}
"""


@pytest.mark.parametrize(
    ("init", "forward", "code"),
    [
        ("", "return F.layer_norm(x, (64,), self.norm.weight, self.norm.bias)", FlagCode.WEIGHTS_AGREE),
        (
            "self.norm.weight.data.fill_(1); self.norm.bias.data.zero_()",
            "return F.layer_norm(x, (64,))",
            FlagCode.WEIGHTS_INCONCLUSIVE,
        ),
        (
            "self.w = self.norm.weight.detach().clone(); self.b = self.norm.bias.detach().clone()",
            "return F.layer_norm(x, (64,), self.w, self.b)",
            FlagCode.WEIGHTS_COPIED,
        ),
    ],
)
def test_other_values_for_constant_weights_are_tried_and_told(
    worker: WorkerContext, init: str, forward: str, code: FlagCode
) -> None:
    reference = NORM.format(name="Model", init="", forward="return self.norm(x)")
    source = {"source_code": reference + f"def get_inputs():\n    return [{NORMAL}]\n", "kernel_type": "torch"}
    candidate = {"source_code": NORM.format(name="ModelNew", init=init, forward=forward), "kernel_type": "torch"}
    outcome = judged(worker, source, candidate).outcome
    assert outcome.status is Status.PASSED, outcome.message
    (finding,) = outcome.inputs["weight_findings"]
    assert finding["code"] == code and "norm.weight, norm.bias" in finding["message"]
    assert finding["data"] == {"constant_weights": 2}


def test_inputs_beyond_the_task_come_after_other_weights_and_to_the_kernel_that_was_timed(
    worker: WorkerContext,
) -> None:
    """A copy of its weights makes the referee construct the kernel again, with other values, and once more without."""
    reference = NORM.format(name="Model", init="", forward="return self.norm(x)")
    source = {"source_code": f"{reference}def get_inputs():\n    return [{NORMAL}]\n", "kernel_type": "torch"}
    init = "self.w = self.norm.weight.detach().clone()"
    forward = "assert x.abs().max() < 50; return F.layer_norm(x, (64,), self.w, self.norm.bias)"
    candidate = {"source_code": NORM.format(name="ModelNew", init=init, forward=forward), "kernel_type": "torch"}
    report = judged(worker, source, candidate, strictness=Strictness.TASK)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert [flag["code"] for flag in report.outcome.inputs["weight_findings"]] == [FlagCode.WEIGHTS_COPIED]
    assert [failure.distribution for failure in failures(report)] == ["outliers"]
    assert distributions(report)["checked"] == [*ALL[:-2], "outliers"]


def test_strides_that_are_not_the_references_are_told(worker: WorkerContext) -> None:
    comparison = judged(worker, "return x * 2", "return (x.t() * 2).contiguous().t()").outcome.comparison
    assert comparison is not None and comparison.passed
    message = "output 0 has strides [1, 16], the reference's [64, 1]"
    assert comparison.layout == [Flag(FlagCode.OUTPUT_LAYOUT_DIFFERS, message, {"output": 0})]


TRANSPOSED_GRADIENT = """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, cotangent):
        return (cotangent.t() * 2).contiguous().t()

def kernel_fn(x):
    return Double.apply(x)
"""


@pytest.mark.parametrize(
    ("reference", "candidate", "more"),
    [
        ("return x[:, :1] * 2", "return (x[:, :1].t() * 2).contiguous().t()", {}),
        (
            "return x * 2",
            {"source_code": f"import torch{TRANSPOSED_GRADIENT}", "kernel_type": "torch"},
            {"gradients": True},
        ),
    ],
)
def test_strides_of_one_element_or_of_a_gradient_are_not_told(
    reference: str, candidate: str | dict[str, Any], more: dict[str, Any], worker: WorkerContext
) -> None:
    comparison = judged(worker, reference, candidate, **more).outcome.comparison
    assert comparison is not None and comparison.passed
    assert comparison.layout == []


def test_a_candidate_that_is_slow_on_the_first_ones_does_not_get_out_of_the_others(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution_check, "BUDGET_S", 1.0)
    slow = f"import time; x.std() < 0.5 and time.sleep(1.5); {NO_MAXIMUM}"
    report = judged(worker, "return torch.softmax(x, -1)", slow)
    assert report.outcome.status is Status.WRONG_RESULT, distributions(report)


ROUTER = "p = torch.softmax(8 * x{change}, -1); "
LARGEST_FOUR = """found = []
        for _ in range(4):
            found.append(p.max(-1, keepdim=True))
            p = p.scatter(-1, found[-1].indices, -1.0)
        return torch.cat([one.values for one in found], -1), torch.cat([one.indices for one in found], -1)"""


@pytest.mark.parametrize(
    "change, status", [("", Status.PASSED), (".clamp(min=-20)", Status.WRONG_RESULT)], ids=["right", "wrong"]
)
def test_any_of_the_scores_that_float32_holds_equal_may_be_selected(
    worker: WorkerContext, change: str, status: Status
) -> None:
    """Far from zero all scores but the largest are 0.0. The index of the largest is still judged."""
    reference = ROUTER.format(change="") + "return torch.topk(p, 4, -1)"
    report = judged(worker, reference, ROUTER.format(change=change) + LARGEST_FOUR)
    assert report.outcome.status is status, report.outcome.message
    if status is Status.PASSED:
        assert distributions(report)["checked"][-len(ALL) :] == ALL
