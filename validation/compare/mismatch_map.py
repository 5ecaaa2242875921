"""Shows where an output is wrong: counts of wrong elements in each block of its worst slice, small enough to draw.

The referee makes the map after a failed call, on the device that holds the outputs, while nothing is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from validation.compare.bitwise import bits, pieces
from validation.compare.comparison import PIECE
from validation.compare.element_errors import raw_values, wrong_elements
from validation.compare.tolerance import Tolerance, effective_tolerance

SIDE = 32
"""Maximum number of blocks of the map in each direction."""


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
    outputs = [
        _WrongOutput(index, want, got, requested)
        for index, (want, got) in enumerate(zip(expected, actual, strict=False))
        if _have_elements_of_one_form(want, got)
    ]
    worst = max(outputs, key=lambda output: output.count, default=None)
    return worst.map() if worst is not None and worst.count else None


def _have_elements_of_one_form(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    same_form = expected.shape == actual.shape and expected.dtype == actual.dtype and expected.device == actual.device
    return same_form and expected.numel() > 0


class _WrongOutput:
    """An output's wrong elements: their number, and the matrix that has most of them.

    They are found piece by piece, in the pieces of the comparison, so that no mask of the whole output is held.
    """

    def __init__(self, index: int, expected: torch.Tensor, actual: torch.Tensor, requested: Tolerance) -> None:
        self._index = index
        self._shape = expected.shape
        self._tolerance = effective_tolerance(expected.dtype, requested)
        self._sides = raw_values(expected), raw_values(actual)
        self._folded = expected.dim() < 2
        if self._folded:
            self._columns = _line(expected.numel())
            self._rows = math.ceil(expected.numel() / self._columns)
        else:
            self._rows, self._columns = expected.shape[-2:]
        self.count = 0
        self._worst, self._worst_count = 0, 0
        self._find_worst_matrix()

    def map(self) -> dict[str, Any]:
        height, width = (math.ceil(size / SIDE) for size in (self._rows, self._columns))
        rows, columns = math.ceil(self._rows / height), math.ceil(self._columns / width)
        counts = torch.zeros(rows * columns, dtype=torch.int64, device=self._sides[0].device)
        size = self._rows * self._columns
        begin, end = self._worst * size, (self._worst + 1) * size
        for positions in self._wrong_positions(begin, end):
            positions = positions[(positions >= begin) & (positions < end)] - begin
            row, column = positions // self._columns, positions % self._columns
            counts += torch.bincount(row // height * columns + column // width, minlength=rows * columns)
        return {
            "output": self._index,
            "shape": list(self._shape),
            "slice": _place(self._worst, self._shape[:-2]),
            "folded": self._folded and self._rows > 1,
            "rows": self._rows,
            "columns": self._columns,
            "block": [height, width],
            "counts": counts.view(rows, columns).tolist(),
            "mismatch_count": int(counts.sum()),
            "output_mismatch_count": self.count,
        }

    def _find_worst_matrix(self) -> None:
        """Count the wrong elements of each matrix. One matrix may lie in many pieces, and a piece in many matrices."""
        size = self._rows * self._columns
        unfinished, unfinished_count = 0, 0
        for positions in self._wrong_positions(0, math.prod(self._shape)):
            if not len(positions):
                continue
            self.count += len(positions)
            matrices = positions // size
            first = int(matrices[0])
            counts = torch.bincount(matrices - first)
            if first == unfinished:
                counts[0] += unfinished_count
            most = int(counts.argmax())
            self._note(first + most, int(counts[most]))
            unfinished, unfinished_count = first + len(counts) - 1, int(counts[-1])

    def _note(self, matrix: int, count: int) -> None:
        if count > self._worst_count:
            self._worst, self._worst_count = matrix, count

    def _wrong_positions(self, begin: int, end: int) -> Iterator[torch.Tensor]:
        """The flat indexes of the wrong elements in each piece that has elements from `begin` to `end`, ascending."""
        expected, actual = self._sides
        for start, want, got in pieces(expected, actual, PIECE // (1 + expected.is_complex())):
            if start < end and begin < start + want.numel() and not torch.equal(bits(want), bits(got)):
                wrong = wrong_elements(want.unsqueeze(0), got.unsqueeze(0), self._tolerance)[0]
                yield wrong.nonzero().flatten().add_(start)


def _line(elements: int) -> int:
    """A power of two, at least SIDE, so that a pattern of warps or blocks shows as columns."""
    return min(elements, max(SIDE, 1 << math.ceil(math.log2(elements) / 2)))


def _place(flat: int, shape: torch.Size) -> list[int]:
    place = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        place.append(position)
    return place[::-1]
