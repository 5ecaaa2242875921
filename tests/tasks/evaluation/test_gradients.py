"""Gradients of a comparison: honest backwards pass, wrong and missing ones are told, and each pass has a time."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import kernel

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(48, 32)
    def forward(self, x, scale):
        return torch.tanh(self.hidden(x)) * scale
def get_inputs():
    return [torch.randn(40, 48), torch.randn(32)]
"""
MODULE = REFERENCE.replace("class Model(", "class ModelNew(").replace("torch.tanh(self.hidden(x))", "{hidden}")
OWN_FUNCTION = """
import torch
{before}
class Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, scale):
        y = torch.tanh(x @ weight.t() + bias)
        ctx.save_for_backward(x, weight, y, scale)
        return y * scale
    {backward}
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(48, 32)
    def forward(self, x, scale):
        return Hidden.apply(x, self.hidden.weight, self.hidden.bias, scale)
"""
RIGHT = """@staticmethod
    def backward(ctx, g):
        x, weight, y, scale = ctx.saved_tensors
        z = g * scale * (1 - y * y)
        return z @ weight, z.t() @ x, z.sum(0), (g * y).sum(0)"""
OPERATOR = """
import torch
@torch.library.custom_op("own::scaled", mutates_args=())
def scaled(y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return y * scale
{registration}
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(48, 32)
    def forward(self, x, scale):
        return scaled(torch.tanh(self.hidden(x)), scale)
"""
REGISTRATION = """
scaled.register_autograd(
    lambda ctx, g: (g * ctx.saved_tensors[1], (g * ctx.saved_tensors[0]).sum(0)),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)"""
RECOMPUTED = """
import torch
from torch.utils.checkpoint import checkpoint
""" + MODULE.format(hidden="checkpoint(lambda x: torch.tanh(self.hidden(x)), x, use_reentrant=False)")
TRITON = """
import torch, triton
import triton.language as tl
@triton.jit
def double(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 256)
        return out
"""
DOUBLE = "import torch\ndef kernel_fn(x):\n    return 2 * x\ndef get_inputs():\n    return [torch.randn(512)]\n"
GATED = """
import torch
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(128, 256)
    def forward(self, x):
        return torch.relu({hidden})
def get_inputs():
    return [torch.randn(64, 128)]
"""
LIKE_TF32 = """
    at, weight = self.hidden, self.hidden.weight
    rounded = [t + (((t.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32) - t).detach() for t in (x, weight)]
"""


def judged(
    worker: WorkerContext, source: str, reference: str = REFERENCE, kernel_type: str = "torch", **more: Any
) -> Report:
    wire = {"kernel": kernel(source, kernel_type), "reference": kernel(reference), "num_trials": 4, "timeout": 60}
    return run(Request.from_wire({**wire, "budget": "quick", "gradients": True, **more}), worker)


def refused(report: Report, status: Status, *words: str) -> None:
    assert report.outcome.status is status, report.outcome.message
    assert report.outcome.message is not None
    for each in words:
        assert each in report.outcome.message


HONEST = {
    "module": MODULE.format(hidden="torch.tanh(torch.addmm(self.hidden.bias, x, self.hidden.weight.t()))"),
    "autograd.Function": OWN_FUNCTION.format(before="", backward=RIGHT),
    "torch.library": OPERATOR.format(registration=REGISTRATION),
    "recomputation": RECOMPUTED,
    "autograd reduces a broadcast gradient": OWN_FUNCTION.format(before="", backward=RIGHT.replace(".sum(0)", "")),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_backward_passes(worker: WorkerContext, name: str) -> None:
    report = judged(worker, HONEST[name])
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.gradients is not None
    names = ["input 0", "input 1", "parameter hidden.weight", "parameter hidden.bias"]
    assert report.outcome.gradients.compared == ["output 0", *(f"gradient of {each}" for each in names)]
    assert not report.outcome.gradients.not_compared


WRONG = {
    "a term is missing": RIGHT.replace("(1 - y * y)", "1"),
    "a broadcast input's gradient is of one row": RIGHT.replace("(g * y).sum(0)", "(g * y)[0]"),
    "the bias's gradient is a mean": RIGHT.replace("z.sum(0)", "z.mean(0)"),
    "the cotangent is taken for ones": RIGHT.replace("z = g", "g = torch.ones_like(g)\n        z = g"),
    "a kept buffer is returned": RIGHT.replace(
        "z = g", "return KEPT.setdefault(0, (torch.ones_like(x), g.t() @ x, g.sum(0), g.sum(0)))\n        z = g"
    ),
    "the first backward is returned again": RIGHT.replace("return ", "return KEPT.setdefault(0, (").replace(
        "(g * y).sum(0)", "(g * y).sum(0)))"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backward_is_wrong(worker: WorkerContext, name: str) -> None:
    source = OWN_FUNCTION.format(before="KEPT = {}", backward=WRONG[name])
    assert judged(worker, source, gradients=False).outcome.status is Status.PASSED, "its outputs are right"
    report = judged(worker, source)
    refused(report, Status.WRONG_RESULT, "first at output ", " (gradient of ")
    assert report.body("j")["kernel_exec_result"]["gradients"]["forward"] is None, "a wrong kernel has no time"


SIZES = """
import torch
def kernel_fn(x):
    return x.mean(dim=1)
def get_inputs(rows=32, columns=32):
    return [torch.randn(rows, columns)]
"""
MEAN = """
import torch
class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean(dim=1)
    @staticmethod
    def backward(ctx, g):
        return (g / ctx.shape[{axis}])[:, None].expand(ctx.shape)
def kernel_fn(x):
    return Mean.apply(x)
"""
CASES = [
    {"name": "square", "arguments": {"rows": 32, "columns": 32}},
    {"name": "wide", "arguments": {"rows": 8, "columns": 48}},
]
OWN_CASES = f"def get_cases():\n    return {[case['arguments'] | {'name': case['name']} for case in CASES]}\n"


@pytest.mark.parametrize("own", [False, True], ids=["of the request", "of get_cases"])
def test_a_backward_that_is_right_for_one_shape_alone_is_wrong_in_the_other_case(
    worker: WorkerContext, own: bool
) -> None:
    report = judged(worker, MEAN.format(axis=0), SIZES + OWN_CASES * own, cases=[] if own else CASES)
    refused(report, Status.WRONG_RESULT, "case 'wide'", "first at output 1 (gradient of input 0)")
    assert [case["verdict"] for case in report.body("j")["cases"]] == ["passed", "wrong_result"]


SHIFTED = """
import torch
def kernel_fn(x, shift=None):
    return x * x if shift is None else (x * x + {shift}, x * x)
def get_cases():
    return [{{"with_shift": False}}, {{"with_shift": True}}]
def get_inputs(with_shift):
    return [torch.randn(32, 16), *([torch.randn(16)] if with_shift else [])]
"""


def test_outputs_of_a_case_with_more_of_them_have_their_own_names(worker: WorkerContext) -> None:
    report = judged(worker, SHIFTED.format(shift="0.5 * (shift + shift.detach())"), SHIFTED.format(shift="shift"))
    refused(report, Status.WRONG_RESULT, "case 'with_shift=True'", "first at output 3 (gradient of input 1)")


def test_cases_are_judged_and_timed_with_both_passes(worker: WorkerContext) -> None:
    cases = [*CASES, {"name": "kept back", "arguments": {"rows": 3, "columns": 5}, "hidden": True, "timed": False}]
    body = judged(worker, MEAN.format(axis=1), SIZES, cases=cases).body("j")
    assert body["verdict"] == "passed"
    assert [case["shapes"] for case in body["cases"]] == [[[32, 32], [32]], [[8, 48], [8]]]
    assert all(case["runtime_ms"] > 0 for case in body["cases"])
    assert body["cases_summary"]["passed"] == 3
    gradients = body["kernel_exec_result"]["gradients"]
    assert gradients["compared"] == ["output 0", "gradient of input 0"]
    assert gradients["forward"] is gradients["backward"] is None
    assert gradients["speedup"] == {"forward": None, "backward": None}


def test_a_backward_that_is_wrong_in_a_hidden_case_says_nothing_of_it(worker: WorkerContext) -> None:
    cases = [CASES[0], CASES[1] | {"hidden": True, "timed": False}]
    report = judged(worker, MEAN.format(axis=0), SIZES, cases=cases)
    refused(report, Status.WRONG_RESULT, "wrong in 1 of 1 hidden cases")
    assert "wide" not in str(report.body("j"))


def test_a_backward_that_writes_into_its_gradient_is_told_so(worker: WorkerContext) -> None:
    source = OWN_FUNCTION.format(before="", backward=RIGHT.replace("z = g", "g.add_(0.5).sub_(0.5)\n        z = g"))
    refused(judged(worker, source), Status.WRONG_RESULT, "or the gradients of its outputs", "write into new tensors")


def test_a_buffer_that_each_backward_overwrites_is_right(worker: WorkerContext) -> None:
    backward = RIGHT.replace("return z @ weight", "torch.mm(z, weight, out=KEPT)\n        return KEPT")
    source = OWN_FUNCTION.format(before="KEPT = torch.empty(40, 48)", backward=backward)
    assert judged(worker, source).outcome.status is Status.PASSED


MISSING = {
    "no backward": (OWN_FUNCTION.format(before="", backward=""), "NotImplementedError"),
    "no autograd formula": (OPERATOR.format(registration=""), "register_autograd"),
    "no graph": (
        MODULE.format(hidden="torch.tanh(self.hidden(x)).detach()").replace("* scale", "* scale.detach()"),
        "where the task needs none there, let the reference detach that output",
    ),
    "no gradient for an input": (
        MODULE.format(hidden="torch.tanh(self.hidden(x))").replace("* scale", "* scale.detach()"),
        "no gradient for input 1, where the reference's gives one: return it, or, where the task needs none there, let",
    ),
    "no gradient for a parameter": (
        MODULE.format(hidden="torch.tanh(x @ self.hidden.weight.t() + self.hidden.bias.detach())"),
        "no gradient for parameter hidden.bias",
    ),
    "a frozen layer": (
        MODULE.format(hidden="torch.tanh(self.hidden.requires_grad_(False)(x))"),
        "its parameter hidden.weight, parameter hidden.bias do not require grad, and the reference's has a gradient",
    ),
    "an input is changed in place": (MODULE.format(hidden="torch.tanh(self.hidden(x.mul_(1)))"), "in-place operation"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_backward_is_told(worker: WorkerContext, name: str) -> None:
    source, words = MISSING[name]
    refused(judged(worker, source), Status.RUNTIME_ERROR, words)


def test_a_triton_kernel_without_a_backward_is_told(worker: WorkerContext) -> None:
    report = judged(worker, TRITON, DOUBLE, "triton")
    refused(report, Status.RUNTIME_ERROR, "output 0 does not require grad", "torch.autograd.Function")


def test_a_triton_kernel_with_a_backward_passes(worker: WorkerContext) -> None:
    function = """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return run(x)
    @staticmethod
    def backward(ctx, g): return run(g.contiguous())
def run(x):"""
    source = TRITON.replace("class ModelNew(torch.nn.Module):\n    def forward(self, x):", function)
    source = source.replace("\n        ", "\n    ") + "def kernel_fn(x): return Double.apply(x)\n"
    assert judged(worker, source, DOUBLE, "triton").outcome.status is Status.PASSED


def test_a_reference_without_gradients_fails(worker: WorkerContext) -> None:
    reference = (
        "import torch\ndef kernel_fn(x):\n    return x.argmax(1)\ndef get_inputs():\n    return [torch.rand(8, 8)]"
    )
    refused(judged(worker, reference, reference), Status.REFERENCE_FAILED, "no output requires grad")


def test_a_wrong_forward_is_told_before_any_gradient(worker: WorkerContext) -> None:
    report = judged(worker, MODULE.format(hidden="torch.sigmoid(self.hidden(x))"))
    refused(report, Status.WRONG_RESULT, "first at output 0")
    assert report.outcome.gradients is None


def test_integers_frozen_and_unmarked_inputs_have_no_gradient(worker: WorkerContext) -> None:
    reference = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.frozen = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
    def forward(self, rows, x, target):
        return {"loss": (self.frozen(self.table(rows)) * x - target).square().mean(), "rows": rows + 1}
def get_inputs():
    return [torch.randint(0, 20, (30,)), torch.randn(30, 8, requires_grad=True), torch.randn(30, 8)]
"""
    source = reference.replace("class Model(", "class ModelNew(").replace("- target", "- target.detach()")
    report = judged(worker, source.replace('"rows": rows + 1}', '"rows": rows + 1}  # the same'), reference)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.gradients is not None
    names = ["output 0", "output 1", "gradient of input 1", "gradient of parameter table.weight"]
    assert report.outcome.gradients.compared == names
    assert list(report.outcome.gradients.not_compared) == ["input 2"]


def test_outputs_in_dicts_get_their_cotangents_by_name(worker: WorkerContext) -> None:
    source = "import torch\ndef kernel_fn(x):\n    return {}\ndef get_inputs():\n    return [torch.randn(9, 9)]\n"
    one, other = '{"a": x.sin(), "b": x.square()}', '{"b": x * x, "a": torch.sin(x)}'
    assert judged(worker, source.format(other), source.format(one)).outcome.status is Status.PASSED


@pytest.mark.parametrize(("factor", "status"), [("1", Status.PASSED), ("1.05", Status.WRONG_RESULT)])
def test_small_gradients_are_judged_by_their_own_size(worker: WorkerContext, factor: str, status: Status) -> None:
    """Of a mean, the elements of the gradient are a thousandth of the tolerance."""
    source = "import torch\ndef kernel_fn(x):\n    return {}\ndef get_inputs():\n    return [torch.randn(300, 300)]\n"
    own = source.format(f"(lambda y: {factor} * y - ({factor} * y - y).detach())((x * x).mean())")
    report = judged(worker, own, source.format("x.square().mean()"))
    assert report.outcome.status is status, report.outcome.message
    assert report.outcome.gradients is not None and report.outcome.gradients.cotangent_scale >= 2**14


def test_parameters_of_other_names_are_named(worker: WorkerContext) -> None:
    source = MODULE.format(hidden="torch.tanh(self.other(x))").replace("self.hidden", "self.other")
    report = judged(worker, source)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.gradients is not None
    assert list(report.outcome.gradients.not_compared) == ["parameter hidden.weight", "parameter hidden.bias"]
    assert report.outcome.timing is not None
    (flag,) = (each for each in report.outcome.timing.flags if each.code is FlagCode.GRADIENTS_NOT_COMPARED)
    assert flag.message.endswith(": parameter hidden.weight, parameter hidden.bias")


def test_each_pass_has_a_time(worker: WorkerContext) -> None:
    result = judged(worker, HONEST["module"], budget="precise", num_trials=6).body("j")
    for side in (result["kernel_exec_result"], result["ref_result"]):
        forward, backward = side["gradients"]["forward"], side["gradients"]["backward"]
        together = side["timing"]["latency_ms"]
        assert forward["latency_ms"] > 0 and len(forward["per_process_ms"]) == len(side["timing"]["per_process_ms"]) > 1
        assert backward["latency_ms"] == pytest.approx(together - forward["latency_ms"])
        assert "less the forward pass" in backward["method"]
    assert set(result["kernel_exec_result"]["gradients"]["speedup"]) == {"forward", "backward"}
    assert "speedup" not in result["ref_result"]["gradients"]


@pytest.mark.parametrize("budget", ["quick", "default"])
def test_a_tf32_product_before_relu_passes_by_the_references_own_kinks(worker: WorkerContext, budget: str) -> None:
    reference = GATED.format(name="Model", hidden="self.hidden(x)")
    source = GATED.format(name="ModelNew", hidden="torch.nn.functional.linear(*rounded, at.bias)")
    source = source.replace("\n        return", LIKE_TF32.replace("\n    ", "\n        ") + "        return")
    report = judged(worker, source, reference, budget=budget)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None
    assert FlagCode.ROUNDING_DECIDES in codes(report.outcome.timing.flags)


def test_a_gradient_of_relu_without_its_last_row_is_wrong(worker: WorkerContext) -> None:
    reference = GATED.format(name="Model", hidden="self.hidden(x)")
    source = GATED.format(name="ModelNew", hidden="self.hidden(torch.cat([x[:-1], x[-1:].detach()]))")
    first = "first at output 1 (gradient of input 0), index [63, "
    refused(judged(worker, source, reference), Status.WRONG_RESULT, first)


def test_the_same_bits_again(worker: WorkerContext) -> None:
    report = judged(worker, HONEST["autograd.Function"], determinism=True)
    assert report.outcome.determinism is not None and report.outcome.determinism.untested is None
    assert len(report.outcome.determinism.outputs) == 5
