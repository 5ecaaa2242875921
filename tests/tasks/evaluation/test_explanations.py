"""What the reader of a verdict is told beside it: work that was left out or done elsewhere, and what to do next."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.request import Request
from domain.result import Report, Status
from tasks.correctness.trials import RANDOM_REFERENCE
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext

LAYERS = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, x):
        return {answer}
"""
INPUTS = "\ndef get_inputs():\n    return [{}]\n"
NORMAL = INPUTS.format("torch.randn(16, 32)")


def torch_kernel(source: str) -> dict[str, Any]:
    return {"kernel_type": "torch", "source_code": source}


def model(answer: str, layers: str = "pass", name: str = "Model") -> str:
    return LAYERS.format(name=name, layers=layers.replace("; ", "\n        "), answer=answer)


def function(*lines: str) -> str:
    return "\n    ".join(["def kernel_fn(x):", *lines]) + "\n"


def judged(worker: WorkerContext, candidate: str | dict[str, Any], reference: str | dict[str, Any]) -> Report:
    wire = {
        "kernel": candidate if isinstance(candidate, dict) else torch_kernel(candidate),
        "reference": reference if isinstance(reference, dict) else torch_kernel(reference),
        "num_trials": 1,
        "timeout": 60,
    }
    return run(Request.from_wire(wire), worker)


def flags(report: Report) -> list[Flag]:
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None, report.outcome.message
    return report.outcome.timing.flags


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        (["x.add_(x)", "return x.sum(-1)"], False),
        (["return 2 * x.sum(-1)"], True),
    ],
)
def test_a_change_of_the_inputs_that_only_the_reference_makes_is_told(
    worker: WorkerContext, candidate: list[str], told: bool
) -> None:
    report = judged(worker, function(*candidate), function("x.mul_(2)", "return x.sum(-1)") + NORMAL)
    assert (Flag.of(FlagCode.INPUTS_CHANGED_DIFFERENTLY) in flags(report)) is told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("x.add_(x)", None),
        ("x[0, 0] = 5", "the kernel changes it otherwise: "),
        ("x[0].mul_(2)", "the reference changes input tensor 0 in place, and the kernel changes it otherwise"),
        ("x.mul_(3)", "write what the reference writes there, or leave the input as it is"),
    ],
)
def test_an_input_that_both_change_has_to_end_as_the_references(
    worker: WorkerContext, change: str, told: str | None
) -> None:
    candidate = function("y = 2 * x.sum(-1)", change, "return y")
    outcome = judged(worker, candidate, function("x.mul_(2)", "return x.sum(-1)") + NORMAL).outcome
    assert outcome.status is (Status.PASSED if told is None else Status.WRONG_RESULT)
    assert told is None or told in (outcome.message or "")


@pytest.mark.parametrize(
    ("quantised", "status"),
    [("(x * 10).round()", Status.PASSED), ("(x * 9).round()", Status.WRONG_RESULT)],
)
def test_few_numbers_that_rounding_decides_are_told(worker: WorkerContext, quantised: str, status: Status) -> None:
    lines = ["def kernel_fn(x, kept):", "kept.copy_({}.clamp(-99, 99).to(torch.int8))", "return x + 1"]
    reference, candidate = ("\n    ".join(lines).format(each) + "\n" for each in ("(x / 0.1).round()", quantised))
    inputs = INPUTS.format("torch.randn(64, 64), torch.zeros(64, 64, dtype=torch.int8)")
    assert judged(worker, candidate, reference + inputs).outcome.status is status


ROLES = {"x": "input", "out": "output"}
STATES = INPUTS.format(
    "torch.randn(2, 64), torch.zeros(2, 2048, 64, dtype=torch.int8), torch.zeros(1, dtype=torch.int32), "
    "torch.zeros(1, 8192, dtype=torch.complex64)"
)
STEP = """def kernel_fn(x, cache, count, wave):
    y = x + 1
    cache[:, 5] = (20 * x).to(torch.int8)
    count += 1
    wave[0, :6] = 1
    return y
"""


@pytest.mark.parametrize(
    ("right", "other", "told"),
    [
        ("(20 * x).to(torch.int8)", "7", "changes input tensor 1 in place, and the kernel changes it otherwise"),
        ("count += 1", "count += 2", "1 of 1 elements, first at index [0]: expected 1, got 2"),
        ("wave[0, :6] = 1", "wave[0, :6] = 2", "expected (1+0j), got (2+0j)"),
        ("return y", "x[0, 9] = 70; return y", "changes input tensor 0, and the reference does not"),
    ],
)
def test_a_small_part_of_the_inputs_has_to_end_as_the_references(
    worker: WorkerContext, right: str, other: str, told: str
) -> None:
    assert right in STEP
    outcome = judged(worker, STEP.replace(right, other), STEP + STATES).outcome
    assert outcome.status is Status.WRONG_RESULT and told in (outcome.message or "")


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [("x * mask", Status.WRONG_RESULT, RANDOM_REFERENCE), ("x + 1", Status.PASSED, "")],
)
def test_a_random_change_of_an_input_is_no_measure(
    worker: WorkerContext, answer: str, status: Status, told: str
) -> None:
    reference, candidate = (
        f"def kernel_fn(x, mask):\n    mask.{change}\n    return {answer}\n"
        for change in ("bernoulli_(0.5)", "copy_(torch.rand_like(mask) < 0.5)")
    )
    inputs = INPUTS.format("torch.randn(64, 32), torch.zeros(64, 32)")
    report = judged(worker, candidate, reference + inputs)
    assert report.outcome.status is status and told in (report.outcome.message or "")
    assert told or Flag.of(FlagCode.INPUTS_CHANGED_DIFFERENTLY) in flags(report)


COUNTING = (
    "class {}:\n    calls = 0\n    def forward(self, x):\n        self.calls += 1\n        {}\n        return {}\n"
    "def get_inputs():\n    return [torch.rand(8)]\n"
)


@pytest.mark.parametrize(("answer", "told"), [("x", True), ("x if self.calls < 25 else x + 1", False)])
def test_a_reference_whose_answers_depend_on_earlier_calls_is_told_in_windows_too(
    worker: WorkerContext, answer: str, told: bool
) -> None:
    reference = "x if self.calls < 25 else x + self.calls" if told else "x"
    sources = COUNTING.format("ModelNew", "", answer), COUNTING.format("Model", "", reference)
    outcome = judged(worker, *sources).outcome
    assert outcome.status is Status.WRONG_RESULT and outcome.comparison is not None
    assert outcome.comparison.calls > outcome.comparison.calls_passed > 0, "valid, then wrong"
    assert (RANDOM_REFERENCE in (outcome.message or "")) is told


@pytest.mark.parametrize("fault", ["raise RuntimeError", "time.sleep(1000)"])
def test_a_late_mistake_stays_one_though_the_reference_fails_when_asked_again(
    worker: WorkerContext, fault: str
) -> None:
    reference = COUNTING.format("Model", f"if self.calls > 130: {fault}", "x")
    candidate = COUNTING.format("ModelNew", "", "x if self.calls < 25 else x + 1")
    report = judged(worker, candidate, f"import time\n{reference}")
    assert report.outcome.status is Status.WRONG_RESULT and report.reference is not None
    assert report.reference.status is Status.PASSED, report.reference.message


@pytest.mark.parametrize(
    ("written", "status", "flagged"),
    [
        ("cache[:, 5] = x", Status.PASSED, False),
        ("cache[:, 5] = 7", Status.WRONG_RESULT, False),
        ("pass", Status.PASSED, True),
    ],
)
def test_inputs_of_a_candidate_with_a_contract_of_its_own(
    worker: WorkerContext, written: str, status: Status, flagged: bool
) -> None:
    reference = "def kernel_fn(x, cache):\n    cache[:, 5] = x\n    return x + 1\n"
    inputs = INPUTS.format("torch.randn(2, 64), torch.zeros(2, 128, 64)")
    shapes = {"x": [2, 64], "cache": [2, 128, 64], "out": [2, 64]}
    args = [
        {"name": name, "type": "tensor", "role": ROLES.get(name, "input"), "tensor_spec": {"shape": shape}}
        for name, shape in shapes.items()
    ]
    source = f"def kernel_fn(x, cache, out):\n    out.copy_(x + 1)\n    {written}\n"
    report = judged(worker, {**torch_kernel(source), "io": {"args": args}}, reference + inputs)
    assert report.outcome.status is status, report.outcome.message
    assert status is Status.WRONG_RESULT or (Flag.of(FlagCode.INPUTS_CHANGED_DIFFERENTLY) in flags(report)) is flagged


NAMED = ["first", "second", "out"]


def test_contracts_that_name_their_inputs_in_other_orders_have_no_common_form(worker: WorkerContext) -> None:
    spec = {"shape": [64], "dtype": "float32", "init": {"kind": "zeros"}}
    bodies = ("    first += 1\n    second += 2\n    out.copy_(first)\n", "    first += 1\n    out.copy_(first)\n")
    reference, candidate = (
        {
            **torch_kernel(f"def kernel_fn({', '.join(names)}):\n{body}"),
            "io": {
                "args": [
                    {"name": name, "type": "tensor", "role": ROLES.get(name, "input"), "tensor_spec": spec}
                    for name in names
                ]
            },
        }
        for names, body in zip((NAMED, ["second", "first", "out"]), bodies, strict=True)
    )
    assert judged(worker, candidate, reference).outcome.status is Status.PASSED


def test_outputs_of_a_contract_are_no_inputs_that_end_otherwise(worker: WorkerContext) -> None:
    spec = {"shape": [64], "dtype": "float32"}
    args = [{"name": name, "type": "tensor", "role": role, "tensor_spec": spec} for name, role in ROLES.items()]
    reference, candidate = (
        {**torch_kernel(f"def kernel_fn(x, out):\n    x.mul_(2)\n    out.copy_({answer})\n"), "io": {"args": args}}
        for answer in ("x", "x + 1")
    )
    outcome = judged(worker, candidate, reference).outcome
    assert outcome.status is Status.WRONG_RESULT and (outcome.message or "").startswith("Outputs are out of tolerance")


@pytest.mark.parametrize("strides", [[64, 1], [1, 32]])
def test_a_layout_that_only_the_candidates_contract_asks_for_is_told(worker: WorkerContext, strides: list[int]) -> None:
    spec = {"shape": [32, 64], "dtype": "float32", "strides": strides}
    contract = {"args": [{"name": "grid", "type": "tensor", "role": "input", "tensor_spec": spec}]}
    candidate = torch_kernel("def kernel_fn(x):\n    return x.t().contiguous()\n") | {"io": contract}
    reference = function("return x.t().contiguous()") + INPUTS.format("torch.randn(32, 64)")
    copied = [flag for flag in flags(judged(worker, candidate, reference)) if flag.code is FlagCode.INPUT_LAYOUT_COPIED]
    assert [flag.data for flag in copied] == [{"inputs": "grid"}] * (strides == [1, 32])


NORM = "self.norm = nn.BatchNorm1d(32)"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)", True),
        ("self.norm(x) * 1", False),
    ],
)
def test_running_statistics_that_only_the_reference_keeps_are_told(
    worker: WorkerContext, answer: str, told: bool
) -> None:
    report = judged(worker, model(answer, NORM, "ModelNew"), model("self.norm(x)", NORM) + NORMAL)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    findings = report.outcome.inputs["weight_findings"]
    found = [finding for finding in findings if finding["code"] == FlagCode.BUFFERS_NOT_UPDATED]
    assert [finding["data"] for finding in found] == [{"buffers": 3}] * told
    assert all("change norm.num_batches_tracked, norm.running_mean" in finding["message"] for finding in found)


@pytest.mark.parametrize("answer", ["self.norm(x)", "self.norm(x) if (self.norm.weight == 1).all() else undefined"])
def test_the_float64_run_has_the_weights_of_the_answers_that_it_is_compared_with(
    worker: WorkerContext, answer: str
) -> None:
    """Also where the reference fails under others."""
    layers = "self.norm = nn.LayerNorm(32)"
    rounded = "self.norm.bfloat16()(x.bfloat16()).float()"
    report = judged(worker, model(rounded, layers, "ModelNew"), model(answer, layers) + NORMAL)
    comparison = report.outcome.comparison
    assert comparison is not None and comparison.precision_check is not None
    assert (
        comparison.precision_check["reference_error"] < 1e-6
        and comparison.precision_check["suspected_dtype"] == "bfloat16"
    )


def test_a_wrong_answer_under_other_weights_says_how_to_be_given_the_references(worker: WorkerContext) -> None:
    reference = model("self.b(self.a(x))", "self.a = nn.Linear(32, 8); self.b = nn.Linear(8, 4)") + NORMAL
    turned = model("self.first(self.second(x))", "self.first = nn.Linear(8, 4); self.second = nn.Linear(32, 8)")
    report = judged(worker, turned, reference)
    assert report.outcome.status is Status.WRONG_RESULT
    assert "with the same state_dict (a.weight [8, 32], a.bias [8]," in (report.outcome.message or "")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("x + 1, x * 2", "right in another order (the reference's are the kernel's 1, 0)"),
        ("x * 2, x + 2", "Outputs are out of tolerance"),
    ],
)
def test_right_outputs_in_another_order_are_named(worker: WorkerContext, answer: str, says: str) -> None:
    report = judged(worker, function(f"return {answer}"), function("return {'twice': x * 2, 'more': x + 1}") + NORMAL)
    assert report.outcome.status is Status.WRONG_RESULT
    assert says in (report.outcome.message or "") and ("right in another" in says) is (
        "right in another" in (report.outcome.message or "")
    )


@pytest.mark.parametrize(
    ("made", "explained"),
    [("torch.randn(16, 10)[:, :4]", True), ("torch.randn(16, 4)", False)],
)
def test_a_wrong_result_on_a_slice_names_its_strides(worker: WorkerContext, made: str, explained: bool) -> None:
    by_shape = function("return x.as_strided(x.shape, (4, 1)) * 2 + 0.5 * (x.stride(0) == 4)")
    report = judged(worker, by_shape, function("return x * 2") + INPUTS.format(made))
    assert report.outcome.status is Status.WRONG_RESULT
    assert ("strides [10, 1]) is not contiguous" in (report.outcome.message or "")) is explained


def test_a_loss_is_no_weak_reference(worker: WorkerContext) -> None:
    """A single number is its own mean, which no kernel knows that does no work."""
    reference = function("return (x * torch.arange(32)).sum()") + NORMAL
    comparison = judged(worker, function("return x.sum(0) @ torch.arange(32.0)"), reference).outcome.comparison
    assert comparison is not None and comparison.passed and comparison.weak_reference == []


def test_indices_of_equal_values_are_told_of(worker: WorkerContext) -> None:
    inputs = INPUTS.format("torch.randint(0, 3, (8, 64)).float()")
    reference = function("return torch.sort(x, stable=True)") + inputs
    report = judged(worker, function("v, i = torch.sort(x.flip(-1), stable=True)", "return v, 63 - i"), reference)
    assert report.outcome.status is Status.WRONG_RESULT
    assert report.outcome.comparison is not None and "equal values" in (report.outcome.comparison.message or "")
