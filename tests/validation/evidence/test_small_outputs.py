"""What the default tolerance tells nothing of, by the answers' own size."""

from __future__ import annotations

import pytest
import torch

from backends.dtypes import torch_dtype
from domain.dtype import CODES, ITEM_BYTES
from validation.compare.tolerance import requested
from validation.evidence.small_outputs import scaled_atols

DEFAULT = requested(None, None)


def test_answers_of_usual_size_are_left_to_the_tolerance() -> None:
    assert scaled_atols([torch.randn(64, 64), torch.arange(9), torch.empty(0)], DEFAULT) is None
    assert scaled_atols([torch.zeros(64)], DEFAULT) is None


def test_small_answers_have_a_tolerance_of_their_own_size() -> None:
    small = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) * 1e-4
    found = scaled_atols([small, torch.ones(64), torch.arange(9)], DEFAULT)
    assert found is not None and found[0] == pytest.approx(4e-6, rel=0.05) and found[1:] == [1e-2, 1e-2]
    found = scaled_atols([torch.complex(small, small)], DEFAULT)
    assert found is not None and found[0] == pytest.approx(5.7e-6, rel=0.05)


@pytest.mark.parametrize("fill", [-1e9, -3.4e38, 65504.0])
def test_what_lies_beside_a_fill_value_has_a_scale_of_its_own(fill: float) -> None:
    filled = torch.randn(64, 64).masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), fill)
    assert scaled_atols([filled], DEFAULT) == [1e-2]
    assert scaled_atols([filled.masked_fill(filled == fill, torch.nan)], DEFAULT) is None


def test_a_tolerance_that_is_named_stands() -> None:
    for named in (requested(1e-2, None), requested(None, 1e-2), requested(1e-2, 1e-2)):
        assert scaled_atols([torch.rand(64) * 1e-4], named) is None


@pytest.mark.parametrize("name", sorted(set(ITEM_BYTES) - CODES))
def test_every_dtype_has_an_answer(name: str) -> None:
    small = torch.full((64, 64), 0.02).to(torch_dtype(name))
    floating = small.is_floating_point() or small.is_complex()
    assert (scaled_atols([small], DEFAULT) is not None) is floating
    assert (scaled_atols([small[:0], small[0, 0]], DEFAULT) is not None) is floating
