"""When memory that a runner freed is cleared."""

from __future__ import annotations

import pytest

from profiling.gpu.timing_device import CLEARED_BYTES_PER_S, FREED_MUCH, cleared_at

SECOND = CLEARED_BYTES_PER_S
"""The bytes that take a second."""


@pytest.mark.parametrize(
    ("freed", "end"),
    [
        ([], 5.0),
        ([(10.0, SECOND)], 11.0),
        ([(4.5, SECOND)], 6.0),
        ([(20.0, SECOND), (10.0, 2 * SECOND)], 21.0),
        ([(10.5, SECOND), (10.0, SECOND)], 12.0),
        ([(10.0, 99 * SECOND)], 13.0),
        ([(10.0, FREED_MUCH - 1)], 5.0),
    ],
)
def test_pieces_are_cleared_one_after_the_other(freed: list[tuple[float, int]], end: float) -> None:
    assert cleared_at(5.0, freed, 3 * SECOND) == pytest.approx(end)
