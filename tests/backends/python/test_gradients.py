"""What a runner's executable says of gradients, and returns of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backends.base import Executable
from domain.fault import KernelFault
from domain.gradients import GradientPlan
from domain.result import Status
from tests.backends.loading import kernel, loaded

MODULE = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
            self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        def forward(self, x, number, rows):
            return {"y": x * self.weight * number + self.frozen, "rows": rows}
"""
X, ROWS, COTANGENT = torch.tensor([5.0, 7.0]), torch.tensor([1, 2]), torch.tensor([10.0, 100.0])


@pytest.fixture
def executable(tmp_path: Path) -> Executable:
    return loaded(kernel(MODULE), tmp_path)


def plan(executable: Executable, args: list[Any]) -> GradientPlan:
    fields = executable.differentiable(args)
    inputs, parameters, outputs = (tuple(fields[name]) for name in ("inputs", "parameters", "outputs"))
    return GradientPlan(inputs, parameters, outputs, tuple(fields["cotangents"]), fields["scale"])


def test_the_gradients_of_a_call(executable: Executable) -> None:
    chosen = plan(executable, [X, 2, ROWS])
    assert (chosen.inputs, chosen.parameters, chosen.outputs) == ((0,), ("weight",), (1,)), "keys in their order"
    (cotangent,) = chosen.cotangents
    assert (cotangent.dtype, cotangent.shape) == ("float32", (2,))
    outputs, gradients = executable.call([X, 2, ROWS, COTANGENT, chosen.argument])
    assert outputs["y"].tolist() == [21.0, 43.0] and not outputs["y"].requires_grad
    assert [gradient.tolist() for gradient in gradients] == [[40.0, 600.0], [100.0, 1400.0]]


@pytest.mark.parametrize(
    ("body", "least", "most"),
    [
        ("x * 5", 1.0, 1.0),
        ("x.mean()", 2.0**11, 2.0**11),
        ("(x * 2.0**-40).sum()", 2.0**24, 2.0**24),
        ("(x.half() * 1e-3).sum() + (x * 50).sum()", 1.0, 8.0),
        ("x * 0", 1.0, 1.0),
    ],
)
def test_the_scale_of_cotangents(tmp_path: Path, body: str, least: float, most: float) -> None:
    chosen = plan(loaded(kernel(f"def kernel_fn(x):\n    return {body}"), tmp_path), [torch.ones(1024)])
    assert least <= chosen.scale <= most and chosen.scale.is_integer()


def test_a_forward_pass_by_itself(executable: Executable) -> None:
    forward = GradientPlan((0,), ("weight",), ())
    outputs = executable.call([X, 2, ROWS, forward.argument])
    assert outputs["y"].tolist() == [21.0, 43.0] and not outputs["y"].requires_grad


def test_gradients_in_float64(executable: Executable) -> None:
    chosen = plan(executable, [X, 2, ROWS])
    outputs, gradients = executable.call_double([X, 2, ROWS, COTANGENT, chosen.argument])
    assert {tensor.dtype for tensor in (outputs["y"], *gradients)} == {torch.float64}
    assert executable.call([X, 2, ROWS, COTANGENT, chosen.argument])[1][0].dtype is torch.float32


def test_arguments_without_the_mark_are_a_call_without_gradients(executable: Executable) -> None:
    assert GradientPlan.of([X, 2, ROWS]) is None and GradientPlan.of([]) is None
    assert executable.call([X, 2, ROWS])["y"].tolist() == [21.0, 43.0]


@pytest.mark.parametrize(
    ("cotangent", "status", "words"),
    [
        (torch.ones(3), Status.WRONG_RESULT, "output 1 is float32 [2], and the reference's is float32 [3]"),
        (torch.ones(2).double(), Status.WRONG_RESULT, "float64"),
    ],
)
def test_an_output_of_another_form(executable: Executable, cotangent: Any, status: Status, words: str) -> None:
    with pytest.raises(KernelFault, match="output 1") as caught:
        executable.call([X, 2, ROWS, cotangent, GradientPlan((0,), (), (1,)).argument])
    assert caught.value.status is status and words in caught.value.message


def test_a_missing_output(executable: Executable) -> None:
    with pytest.raises(KernelFault, match="output 5 is missing"):
        executable.call([X, 2, ROWS, COTANGENT, GradientPlan((0,), (), (5,)).argument])
