"""The hint at equal values is given where only indices differ, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from validation.compare.ties import TIES_MESSAGE, explain_ties

VALUES, INDICES = torch.tensor([3.0, 3.0, 1.0]), torch.tensor([0, 1, 2])
SWAPPED = torch.tensor([1, 0, 2])


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        ([VALUES, INDICES], [VALUES, SWAPPED], TIES_MESSAGE),
        ([INDICES, VALUES], [SWAPPED, VALUES], TIES_MESSAGE),
        ([VALUES, INDICES], [VALUES, INDICES], None),
        ([VALUES, INDICES], [VALUES + 1, SWAPPED], None),
        ([INDICES], [SWAPPED], None),
        ([VALUES, INDICES[:2]], [VALUES, SWAPPED[:2]], None),
        ([VALUES, INDICES], [VALUES], None),
        ([VALUES, INDICES.bool()], [VALUES, SWAPPED.bool()], None),
    ],
)
def test_it_is_told_where_only_indices_differ(
    expected: list[torch.Tensor], actual: list[torch.Tensor], told: str | None
) -> None:
    assert explain_ties(expected, actual) == told
