"""A call in float64 rounds nowhere, whatever dtypes its source names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from backends.python.float64_mode import Float64Mode

FLOAT8 = torch.float8_e4m3fn
ONE, OTHER = (torch.linspace(-1, 1, 128, dtype=torch.float64).reshape(8, 16).sin() * scale for scale in (1.1, 0.7))


def in_float64(function: Callable[..., Tensor], *args: Tensor) -> Tensor:
    with torch.no_grad(), Float64Mode():
        return function(*args)


def filled(one: Tensor, other: Tensor) -> Tensor:
    out = torch.empty(8, 8, dtype=torch.bfloat16)
    torch.mm(one.half(), other.half().T, out=out)
    return out


@pytest.mark.parametrize(
    "function",
    [
        lambda one, other: (one.to(torch.bfloat16) @ other.half().T).float(),
        lambda one, other: torch.zeros(8, 8, dtype=torch.float32) + one.float() @ other.float().T,
        lambda one, other: torch.sum(one[:, None] * other[None], -1, dtype=torch.float32).to(torch.float16),
        lambda one, other: torch.zeros(8, 8).addmm_(one, other.T),
        filled,
    ],
)
def test_casts_and_new_tensors_stay_in_float64(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    found = in_float64(function, ONE, OTHER)
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, ONE @ OTHER.T, rtol=1e-14, atol=1e-14)


def test_it_does_not_import_the_compiler() -> None:
    """That takes seconds, of the few that a runner has for such a call."""
    program = (
        "import sys, torch; from backends.python.float64_mode import Float64Mode\n"
        "with torch.no_grad(), Float64Mode(): torch.ones(2).half().sum()\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_cast_to_float8_or_to_an_integer_stays_one() -> None:
    assert in_float64(lambda one: one.to(FLOAT8), ONE).dtype is FLOAT8
    assert torch.equal(in_float64(lambda one: one.to(FLOAT8).float(), ONE), ONE.to(FLOAT8).double())
    assert in_float64(lambda one: (one * 100).to(torch.int8), ONE).dtype is torch.int8


@pytest.mark.parametrize("scales", [((), ()), ((8, 1), (1, 8))])
def test_a_scaled_float8_product_is_made_in_float64(scales: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    left, right = (torch.full(shape, value) for shape, value in zip(scales, (0.5, 3.0), strict=True))
    quantised = [tensor.to(FLOAT8).double() for tensor in (ONE, OTHER)]

    def scaled(one: Tensor, other: Tensor) -> Tensor:
        return torch._scaled_mm(one, other.T, left, right, out_dtype=torch.bfloat16)

    found = in_float64(scaled, *quantised)
    torch.testing.assert_close(found, 1.5 * quantised[0] @ quantised[1].T, rtol=1e-14, atol=1e-14)


def test_a_scaled_product_of_another_form_has_none() -> None:
    def blocks(one: Tensor, other: Tensor) -> Tensor:
        return torch._scaled_mm(one, other.T, torch.ones(8, 2), torch.ones(1, 8), out_dtype=torch.bfloat16)

    with pytest.raises(NotImplementedError):
        in_float64(blocks, ONE, OTHER)


def test_the_default_dtype_is_as_it_was_afterwards() -> None:
    in_float64(torch.add, ONE, ONE)
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    "select",
    [
        lambda one: torch.topk(one, 3),
        lambda one: torch.topk(one.T, 3, 0),
        lambda one: one.sort(dim=0, descending=True),
        lambda one: torch.sort(one),
        lambda one: one.max(-1, keepdim=True),
        lambda one: (one.amin(0), torch.argmin(one, 0)),
    ],
)
def test_equal_values_are_selected_in_another_order_by_each_run(
    select: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> None:
    """So an index that several runs agree on is the only right one."""
    near_one = torch.tensor([20.0, 25.0, 30.0, 35.0, 40.0, 45.0], dtype=torch.float64).sigmoid()
    scores = torch.stack([torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, -torch.inf], dtype=torch.float64), near_one])
    runs = [in_float64(lambda one: torch.cat([part.double() for part in select(one)]), scores) for _ in range(20)]
    values = select(scores)[0]
    assert all(torch.equal(run[: len(values)], values) for run in runs)
    assert len({tuple(run.flatten().tolist()) for run in runs}) > 1


def test_a_stable_sort_keeps_the_order_of_equal_values() -> None:
    order = in_float64(lambda one: torch.sort(one, stable=True)[1], torch.zeros(9, dtype=torch.float64))
    assert order.tolist() == list(range(9))


def test_a_clear_order_stays() -> None:
    values = torch.linspace(1, 2, 1000, dtype=torch.float64).flip(0)
    assert torch.equal(in_float64(lambda one: torch.topk(one, 900)[1], values), torch.arange(900))
