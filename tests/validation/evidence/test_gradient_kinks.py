"""Gradients at kinks: flipped elements are excused as far as the reference flips them itself, errors are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from validation.compare.comparison import compare
from validation.compare.tolerance import requested
from validation.evidence.gradient_kinks import Differences, explained_by_kinks
from validation.evidence.perturbation_bound import Outputs
from validation.inputs.distributions import perturbed

DEFAULT = requested(None, None)
ROWS, INPUTS, HIDDEN = 64, 96, 256
Flip = Callable[[torch.Tensor], torch.Tensor]


def gradients(
    x: torch.Tensor, weight: torch.Tensor, cotangent: torch.Tensor, flip: Flip = lambda mask: mask
) -> Outputs:
    """Of relu(x @ weight), with the mask of open gates changed by `flip`: the input's and the weight's."""
    gated = cotangent * flip((x @ weight > 0).to(cotangent.dtype))
    return [gated @ weight.t(), x.t() @ gated]


def case(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(ROWS, INPUTS, generator=generator), torch.randn(INPUTS, HIDDEN, generator=generator)
    return x, weight / INPUTS**0.5, torch.randn(ROWS, HIDDEN, generator=generator)


def runs(x: torch.Tensor, weight: torch.Tensor, cotangent: torch.Tensor) -> list[Outputs]:
    moves = [0.0, *(sign * by for by in (1.25e-3, 2.5e-3) for sign in (1, -1))]
    moved = [perturbed(x.double(), by, int(abs(by) * 1e5), zeros=True) if by else x.double() for by in moves]
    return [gradients(one, weight.double(), cotangent.double()) for one in moved]


def near_zero(x: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor, count: int) -> torch.Tensor:
    """The mask with those gates flipped that are nearest to the kink."""
    nearest = (x @ weight).abs().flatten().argsort()[:count]
    flipped = mask.flatten().clone()
    flipped[nearest] = 1 - flipped[nearest]
    return flipped.view_as(mask)


@pytest.mark.parametrize("seed", range(4))
def test_gates_that_rounding_flips_are_excused(seed: int) -> None:
    x, weight, cotangent = case(seed)
    actual = gradients(x, weight, cotangent, lambda mask: near_zero(x, weight, mask, 2))
    assert not compare(gradients(x, weight, cotangent), actual, DEFAULT).passed, "each flip changes a row"
    assert explained_by_kinks(actual, runs(x, weight, cotangent), DEFAULT)


@pytest.mark.parametrize(
    "flip",
    [
        lambda mask: torch.cat([mask[:-1], torch.zeros(1, HIDDEN)]),
        lambda mask: torch.cat([mask[:, :-1], 1 - mask[:, -1:]], 1),
        lambda mask: 0.95 * mask,
        torch.ones_like,
    ],
    ids=["last row", "last column", "scaled", "no gate"],
)
def test_errors_are_not_excused(flip: Flip) -> None:
    x, weight, cotangent = case(9)
    assert not explained_by_kinks(gradients(x, weight, cotangent, flip), runs(x, weight, cotangent), DEFAULT)


def test_a_nan_is_not_excused() -> None:
    actual = gradients(*case(1))
    actual[0][3, 4] = torch.nan
    assert not explained_by_kinks(actual, runs(*case(1)), DEFAULT)


def test_nothing_is_excused_without_moved_runs_or_of_another_shape() -> None:
    actual, (exact, *moved) = gradients(*case(2)), runs(*case(2))
    assert explained_by_kinks(actual, [exact, *moved], DEFAULT)
    assert not explained_by_kinks(actual, [exact], DEFAULT)
    assert not explained_by_kinks(actual, [], DEFAULT)
    assert not explained_by_kinks(actual[:1], [exact, *moved], DEFAULT)


def test_later_calls_may_differ_by_twice_the_examined_ones() -> None:
    seen = Differences()
    zero, one = [torch.zeros(8)], [torch.ones(8)]
    assert not seen.cover(zero, zero), "nothing was examined"
    seen.widen(zero, one)
    assert seen.calls == 1 and seen.cover(zero, [2 * one[0]]) and not seen.cover(zero, [2.1 * one[0]])
    assert not seen.cover(zero, [torch.full((8,), torch.nan)])
    spike = torch.zeros(8)
    spike[0] = 2.5
    assert not seen.cover(zero, [spike]), "an element has a bound of its own"
