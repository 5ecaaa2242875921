"""The map of wrong elements, against numpy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from validation.compare import mismatch_map as module
from validation.compare.comparison import compare
from validation.compare.mismatch_map import SIDE, mismatch_map
from validation.compare.tolerance import Tolerance

TOLERANCE = Tolerance(1e-3, 1e-3)


def nudged(shape: tuple[int, ...], share: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """A tensor, the same with some elements wrong, and which."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal(shape).astype(np.float32)
    wrong = draw.random(shape) < share
    return torch.from_numpy(values), torch.from_numpy(np.where(wrong, values + 1, values)), wrong


@pytest.mark.parametrize("shape", [(5, 7), (64, 64), (100, 33), (1, 1000), (3, 40, 50), (2, 3, 16, 70)])
@pytest.mark.parametrize("small", [False, True])
def test_counts_are_numpys(shape: tuple[int, ...], small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if small:
        monkeypatch.setattr(module, "PIECE", 13)
    expected, actual, wrong = nudged(shape, 0.2)
    found = mismatch_map([expected], [actual], TOLERANCE)
    assert found is not None
    slices = wrong.reshape(-1, *shape[-2:])
    worst = int(slices.sum(axis=(1, 2)).argmax())
    assert tuple(found["slice"]) == np.unravel_index(worst, shape[:-2] or (1,))[: len(shape) - 2]
    height, width = found["block"]
    counts = np.array(found["counts"])
    for row in range(counts.shape[0]):
        for column in range(counts.shape[1]):
            block = slices[worst, row * height : (row + 1) * height, column * width : (column + 1) * width]
            assert counts[row, column] == block.sum()
    assert (found["rows"], found["columns"]) == shape[-2:]
    assert (found["mismatch_count"], found["output_mismatch_count"]) == (slices[worst].sum(), wrong.sum())
    assert max(counts.shape) <= SIDE and not found["folded"]
    json.dumps(found)


@pytest.mark.parametrize("size", [1, 31, 33, 1000, 5000])
def test_one_dimension_is_folded_into_lines(size: int) -> None:
    expected, actual = torch.zeros(size), torch.zeros(size)
    actual[-1] = 1
    found = mismatch_map([expected], [actual], TOLERANCE)
    assert found is not None
    assert found["folded"] == (size > SIDE)
    at = (size - 1) // found["columns"] // found["block"][0], (size - 1) % found["columns"] // found["block"][1]
    assert found["counts"][at[0]][at[1]] == 1 == sum(map(sum, found["counts"]))
    assert found["rows"] * found["columns"] >= size


def test_the_output_with_the_most_wrong_elements_is_shown() -> None:
    right = torch.zeros(4, 4)
    found = mismatch_map(
        [right, right, right], [right, right + 1, right.index_fill(0, torch.tensor([0]), 1.0)], TOLERANCE
    )
    assert found is not None and (found["output"], found["mismatch_count"]) == (1, 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.uint64, torch.bool, torch.complex64])
def test_every_kind_of_dtype_as_the_comparison_counts(dtype: torch.dtype) -> None:
    expected = torch.zeros(40, 40, dtype=dtype)
    actual = expected.clone()
    actual.view(torch.uint8).reshape(40, -1)[3] = 1 if dtype in (torch.int32, torch.uint64, torch.bool) else 0x55
    counted = compare([expected], [actual], TOLERANCE).mismatch_count
    found = mismatch_map([expected], [actual], TOLERANCE)
    assert found is not None and found["mismatch_count"] == counted == 40


def test_nan_counts_and_what_is_no_element_has_no_map() -> None:
    right = torch.zeros(3, 3)
    found = mismatch_map([right], [torch.full((3, 3), torch.nan)], TOLERANCE)
    assert found is not None and found["mismatch_count"] == 9
    assert mismatch_map([right], [right], TOLERANCE) is None
    assert mismatch_map([right], [torch.zeros(9)], TOLERANCE) is None
    assert mismatch_map([right], [right.double()], TOLERANCE) is None
    assert mismatch_map([torch.zeros(0)], [torch.zeros(0)], TOLERANCE) is None
    assert mismatch_map([right], [], TOLERANCE) is None


@pytest.mark.parametrize("piece", [1, 7, 64, 1000])
@pytest.mark.parametrize("shape", [(6, 5, 3), (2, 40, 50), (300, 1, 2), (5000,)])
def test_the_size_of_the_pieces_does_not_show(
    shape: tuple[int, ...], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, actual, _ = nudged(shape, 0.05)
    whole = mismatch_map([expected], [actual], TOLERANCE)
    monkeypatch.setattr(module, "PIECE", piece)
    assert whole == mismatch_map([expected], [actual], TOLERANCE) is not None


@pytest.mark.gpu
def test_a_map_made_on_the_card_is_the_same() -> None:
    expected, actual, _ = nudged((3, 200, 300), 0.1)
    assert mismatch_map([expected.cuda()], [actual.cuda()], TOLERANCE) == mismatch_map([expected], [actual], TOLERANCE)
