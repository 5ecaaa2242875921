"""Draws where an output is wrong: blocks of the worst slice, darker where more of their elements are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIDE = 300.0
LEAST_CELL, LEAST_SHADE = 6.0, 0.25
MOST = 64
"""Maximum blocks drawn in each direction, whatever the map holds."""


@dataclass(frozen=True)
class Cell:
    """A block with wrong elements; `shade` is their share, from LEAST_SHADE to 1."""

    x: float
    y: float
    shade: float
    text: str


@dataclass(frozen=True)
class HeatMap:
    """The drawing. `rows` and `columns` are the first and last that may contain a wrong element, as far as blocks
    tell."""

    cells: list[Cell]
    width: float
    height: float
    cell_width: float
    cell_height: float
    rows: tuple[int, int]
    columns: tuple[int, int]
    where: Mapping[str, Any]


def heat_map(where: Mapping[str, Any] | None) -> HeatMap | None:
    if not where or not where.get("counts"):
        return None
    counts = [row[:MOST] for row in where["counts"][:MOST]]
    tall, wide = len(counts), len(counts[0])
    block_rows, block_columns = where["block"]
    width = max(SIDE if wide >= tall else SIDE * wide / tall, wide * LEAST_CELL)
    height = max(SIDE if tall >= wide else SIDE * tall / wide, tall * LEAST_CELL)
    across, down = width / wide, height / tall
    cells = []
    wrong = [(y, x, number) for y, row in enumerate(counts) for x, number in enumerate(row) if number]
    for y, x, number in wrong:
        rows = _within(y, block_rows, where["rows"])
        columns = _within(x, block_columns, where["columns"])
        elements = (rows[1] - rows[0] + 1) * (columns[1] - columns[0] + 1)
        shade = LEAST_SHADE + (1 - LEAST_SHADE) * min(1.0, number / max(elements, 1))
        text = f"rows {rows[0]} to {rows[1]}, columns {columns[0]} to {columns[1]}: {number} of {elements} wrong"
        cells.append(Cell(round(x * across, 2), round(y * down, 2), round(shade, 3), text))
    ys, xs = [y for y, _, _ in wrong], [x for _, x, _ in wrong]
    return HeatMap(
        cells,
        round(width, 2),
        round(height, 2),
        round(across, 2),
        round(down, 2),
        (_within(min(ys), block_rows, where["rows"])[0], _within(max(ys), block_rows, where["rows"])[1]),
        (_within(min(xs), block_columns, where["columns"])[0], _within(max(xs), block_columns, where["columns"])[1]),
        where,
    )


def _within(block: int, size: int, most: int) -> tuple[int, int]:
    """The first and the last index of a block; the last block may be short."""
    return block * size, min((block + 1) * size, most) - 1
