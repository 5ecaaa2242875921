"""Products that accumulate in float32 are within the bound in every element, those in float16 or bfloat16 are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from validation.evidence.float64_bound import (
    error_bound,
    half_unit,
    is_low_precision,
    most_beyond,
    reduction_length,
    relative_allowance,
    root_mean_square,
)

LOW = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float8": torch.float8_e4m3fn}
ROWS, COLUMNS = 48, 40
LENGTHS = (256, 2048, 16384)


def sequential(step: int, dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A product that adds `step` exact products at once to a sum in `dtype`."""

    def product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(len(one), other.shape[1], dtype=dtype)
        for start in range(0, one.shape[1], step):
            part = one[:, start : start + step].double() @ other[start : start + step].double()
            total = (total.double() + part).to(dtype)
        return total.double()

    return product


def split(parts: int, dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A product in that many parts over its length, each summed in float32, whose sums are added in `dtype`."""

    def product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        size = one.shape[1] // parts
        sums = [
            sequential(16, torch.float32)(one[:, start : start + size], other[start : start + size]).to(dtype)
            for start in range(0, one.shape[1], size)
        ]
        return torch.stack(sums).flip(0).cumsum(0, dtype=dtype)[-1].double()

    return product


def tensor_core(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A float8 product as Hopper adds it: 32 products and the sum are cut to 13 fraction bits of the largest."""
    total = torch.zeros(len(one), other.shape[1], dtype=torch.float64)
    for start in range(0, one.shape[1], 32):
        terms = one[:, start : start + 32, None].double() * other[None, start : start + 32].double()
        terms = torch.cat([terms, total[:, None]], 1)
        unit = torch.exp2(terms.abs().amax(1, keepdim=True).clamp_min(1e-30).log2().floor() - 13)
        total = (torch.trunc(terms / unit) * unit).sum(1)
    return total


def operands(length: int, dtype: torch.dtype, *, positive: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    one, other = (torch.randn(shape, generator=generator) for shape in ((ROWS, length), (length, COLUMNS)))
    if positive:
        one, other = one.abs(), other.abs()
    return one.to(dtype), (other * length**-0.5).to(dtype)


def largest_error(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    length: int,
    dtype: torch.dtype,
    *,
    positive: bool = False,
) -> float:
    """The error of the worst element of the product, rounded to its output's dtype, relative to the bound."""
    one, other = operands(length, dtype, positive=positive)
    output = torch.bfloat16 if dtype is torch.float8_e4m3fn else dtype
    exact = one.double() @ other.double()
    reference = exact.float().to(output)
    counted = reduction_length([reference], [one, other], 2 * exact.numel() * length)
    assert counted == length
    allowance = relative_allowance(reference, exact, counted, is_float8=dtype is torch.float8_e4m3fn)
    actual = product(one, other).to(output).double()
    bounds = error_bound(exact, root_mean_square(exact), allowance, output)
    return float(((actual - exact).abs() / bounds).max())


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_sums_in_float32_are_right_in_any_order(dtype: torch.dtype, length: int, positive: bool) -> None:
    for product in (sequential(16, torch.float32), sequential(128, torch.float32), split(8, torch.float32)):
        assert largest_error(product, length, dtype, positive=positive) <= 1


@pytest.mark.parametrize("length", [2048, 16384])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_in_the_inputs_own_precision_are_wrong(dtype: torch.dtype, length: int) -> None:
    for product in (sequential(16, dtype), sequential(128, dtype), split(8, dtype), split(4, dtype)):
        assert largest_error(product, length, dtype) > 1.5


def test_a_bfloat16_output_excuses_no_sum_in_float16() -> None:
    assert largest_error(sequential(16, torch.float16), 16384, torch.bfloat16) > 1.2


@pytest.mark.parametrize("length", [1024, 4096, 8192])
def test_the_accumulator_of_float8_tensor_cores_is_right(length: int) -> None:
    assert largest_error(tensor_core, length, torch.float8_e4m3fn) <= 1


def test_a_float8_product_that_accumulates_in_bfloat16_is_wrong() -> None:
    assert largest_error(sequential(32, torch.bfloat16), 8192, torch.float8_e4m3fn) > 1.2


def test_a_reference_that_rounds_intermediate_values_allows_them_to_the_kernel() -> None:
    one, other = operands(2048, torch.bfloat16, positive=False)
    exact = one.double() @ other.double() * 1.1
    rounded = ((one.double() @ other.double()).to(torch.bfloat16).double() * 1.1).to(torch.bfloat16)
    allowances = [
        relative_allowance(reference, exact, 2048, is_float8=False) for reference in (rounded, exact.to(torch.bfloat16))
    ]
    assert allowances[0] > 2.0**-9 > 2.0**-14 > allowances[1]


def test_half_a_unit_is_that_of_the_dtype_at_the_value() -> None:
    values = torch.tensor([1.0, 1.99, -2.0, 0.0, 2.0**-14, 3e4], dtype=torch.float64)
    assert half_unit(values, torch.float16).tolist() == [2.0**-11, 2.0**-11, 2.0**-10, 2.0**-25, 2.0**-25, 8.0]
    assert half_unit(values[:1], torch.bfloat16).tolist() == [2.0**-8]


def test_few_elements_are_a_share_of_all_or_two() -> None:
    assert [most_beyond(count, 1 - 1e-6) for count in (10, 10_000_000)] == [2, 10]
    assert most_beyond(1000, 0.9) == 100 and most_beyond(10**9, 1.0) == 0


def test_low_precision_is_16_bits_of_a_floating_dtype_or_fewer() -> None:
    low = [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
    wide = [torch.float32, torch.float64, torch.int8, torch.bool, torch.complex64]
    assert [dtype for dtype in [*low, *wide] if is_low_precision(torch.zeros(1, dtype=dtype))] == low
