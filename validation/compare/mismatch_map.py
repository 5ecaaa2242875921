"""Shows where an output is wrong: counts of wrong elements in each block of its worst slice, small enough to draw.

The referee makes the map after a failed call, on the device that holds the outputs, while nothing is being timed.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from validation.compare.bitwise import pieces
from validation.compare.comparison import PIECE
from validation.compare.element_errors import raw_values, wrong_elements
from validation.compare.tolerance import Tolerance, effective_tolerance

SIDE = 32
"""Maximum number of blocks of the map in each direction."""
MOST_ELEMENTS = 1 << 28
"""Maximum elements of an output that gets a map; its mask takes a byte for each."""


def mismatch_map(
    expected: list[torch.Tensor], actual: list[torch.Tensor], requested: Tolerance
) -> dict[str, Any] | None:
    """Maps the output with the most wrong elements; JSON-ready. None where no element is wrong.

    - `slice`: leading indexes of the matrix (the last two dimensions) with the most wrong elements.
    - `rows`, `columns`: the size of that matrix.
    - `block`: the rows and columns of each block; `counts`: the wrong elements of each block.
    - `folded`: a tensor of one dimension is shown in lines of `columns` elements; the last line may be short.
    - `mismatch_count` covers the slice, `output_mismatch_count` the whole output.
    """
    masks = [
        (index, _mask(want, got, requested)) for index, (want, got) in enumerate(zip(expected, actual, strict=False))
    ]
    counted = [(int(mask.sum()), index, mask) for index, mask in masks if mask is not None]
    count, output, mask = max(counted, key=lambda entry: entry[0], default=(0, 0, None))
    if mask is None or count == 0:
        return None
    matrices, folded = _matrices(mask)
    worst = int(matrices.sum(dim=(1, 2)).argmax())
    matrix = matrices[worst]
    height, width = (math.ceil(size / SIDE) for size in matrix.shape)
    counts = _blocks(matrix, height, width)
    return {
        "output": output,
        "shape": list(mask.shape),
        "slice": _place(worst, mask.shape[:-2]),
        "folded": folded,
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "block": [height, width],
        "counts": counts.tolist(),
        "mismatch_count": int(counts.sum()),
        "output_mismatch_count": count,
    }


def _mask(expected: torch.Tensor, actual: torch.Tensor, requested: Tolerance) -> torch.Tensor | None:
    """The wrong elements, found piece by piece as the comparison does; None where no mask can be made."""
    same_form = expected.shape == actual.shape and expected.dtype == actual.dtype and expected.device == actual.device
    if not same_form or not 0 < expected.numel() <= MOST_ELEMENTS:
        return None
    tolerance = effective_tolerance(expected.dtype, requested)
    parts = [
        wrong_elements(want.unsqueeze(0), got.unsqueeze(0), tolerance)[0]
        for _, want, got in pieces(raw_values(expected), raw_values(actual), PIECE // (1 + expected.is_complex()))
    ]
    return torch.cat(parts).reshape(expected.shape)


def _matrices(mask: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The mask as [slices, rows, columns], and whether one dimension was folded into two."""
    if mask.ndim >= 2:
        return mask.reshape(-1, *mask.shape[-2:]), False
    flat = mask.reshape(-1)
    columns = _line(flat.numel())
    rows = math.ceil(flat.numel() / columns)
    padded = torch.nn.functional.pad(flat, (0, rows * columns - flat.numel()))
    return padded.reshape(1, rows, columns), rows > 1


def _line(elements: int) -> int:
    """A power of two, at least SIDE, so that a pattern of warps or blocks shows as columns."""
    return min(elements, max(SIDE, 1 << math.ceil(math.log2(elements) / 2)))


def _blocks(matrix: torch.Tensor, height: int, width: int) -> torch.Tensor:
    rows, columns = math.ceil(matrix.shape[0] / height), math.ceil(matrix.shape[1] / width)
    missing = (0, columns * width - matrix.shape[1], 0, rows * height - matrix.shape[0])
    padded = torch.nn.functional.pad(matrix, missing)
    return padded.reshape(rows, height, columns, width).sum(dim=(1, 3)).cpu()


def _place(flat: int, shape: torch.Size) -> list[int]:
    place = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        place.append(position)
    return place[::-1]
