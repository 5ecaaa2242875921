"""A kernel is held more exact than its reference only where float64 shows it for every element."""

from __future__ import annotations

import pytest
import torch

from validation.compare.tolerance import requested
from validation.evidence.reference_error import kernel_is_exact, reference_error, rounds_outputs_alone

TOLERANCE = requested(None, None)
TERMS = 4096


def sums() -> tuple[torch.Tensor, torch.Tensor]:
    """Sums in float64, [64, 64], and the same added in bfloat16."""
    torch.manual_seed(0)
    terms = (torch.randn(TERMS // 16, 64, 64) + 0.5).bfloat16()
    total = torch.zeros(64, 64, dtype=torch.bfloat16)
    for term in terms:
        total += term
    return terms.double().sum(0), total


def test_a_sum_in_bfloat16_errs_and_one_in_float32_does_not() -> None:
    exact, coarse = sums()
    right = exact.float().bfloat16()
    assert kernel_is_exact([right], [exact], TERMS) and not kernel_is_exact([coarse], [exact], TERMS)
    error = reference_error([coarse], [right], [exact], TERMS, TOLERANCE)
    assert error is not None and 0.01 < error < 1


@pytest.mark.parametrize("units", [2, 3])
def test_one_element_that_is_units_off_is_not_exact(units: int) -> None:
    exact, _ = sums()
    off = exact.bfloat16()
    off.view(-1).view(torch.int16)[77] += units
    assert kernel_is_exact([off], [exact], TERMS) is (
        units == 1 and bool(off.view(-1)[77] < exact.view(-1)[77] * 1.004)
    )


def test_where_the_reference_is_right_it_is_not_the_one_that_errs() -> None:
    exact, coarse = sums()
    wrong = exact.bfloat16()
    wrong[3, 5] *= 1.5
    assert reference_error([exact.bfloat16()], [wrong], [exact], TERMS, TOLERANCE) is None
    coarse[3, 5] = exact[3, 5]
    assert reference_error([coarse], [wrong], [exact], TERMS, TOLERANCE) is None


def test_an_element_of_another_dtype_or_shape_shows_nothing() -> None:
    exact, coarse = sums()
    right = exact.bfloat16()
    one = torch.ones(4)
    assert reference_error([coarse, one], [right, 2 * one], [exact, one.double()], TERMS, TOLERANCE) is None
    assert not kernel_is_exact([right], [exact[:1]], TERMS)
    assert not kernel_is_exact([right], [exact.float()], TERMS)
    right[0, 0] = torch.nan
    assert not kernel_is_exact([right], [exact], TERMS)


def test_casts_that_round_more_than_the_output_are_part_of_the_task() -> None:
    exact, _ = sums()
    logits = exact * 10
    expected = [torch.empty(64, 64, dtype=torch.bfloat16)]
    through = [torch.softmax(values, -1) for values in (logits, logits.bfloat16().double())]
    assert rounds_outputs_alone([exact], [exact.bfloat16().double()], expected)
    assert not rounds_outputs_alone(through[:1], through[1:], expected)
