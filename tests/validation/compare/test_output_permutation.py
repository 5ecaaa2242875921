"""Right outputs in another order are found, and nothing else is taken for them."""

from __future__ import annotations

import torch

from validation.compare.output_permutation import MAX_OUTPUTS, describe_permutation
from validation.compare.tolerance import Tolerance

TOLERANCE = Tolerance(1e-2, 1e-2)
ONE, TWO, WIDE = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.ones(3, 3)


def test_places_are_named() -> None:
    found = describe_permutation([ONE, TWO, WIDE], [WIDE, ONE + 1e-3, TWO], TOLERANCE)
    assert found is not None and "the kernel's 1, 2, 0)" in found


def test_each_output_is_found_once() -> None:
    assert describe_permutation([ONE, ONE, TWO], [ONE, TWO, TWO], TOLERANCE) is None
    assert describe_permutation([ONE, ONE, TWO], [TWO, ONE, ONE], TOLERANCE) is not None


def test_what_is_wrong_in_any_order_has_none() -> None:
    assert describe_permutation([ONE, TWO], [TWO, TWO], TOLERANCE) is None
    assert describe_permutation([ONE, TWO], [ONE, TWO, WIDE], TOLERANCE) is None
    assert describe_permutation([ONE], [TWO], TOLERANCE) is None
    many = [torch.tensor([float(number)]) for number in range(MAX_OUTPUTS + 1)]
    assert describe_permutation(many, many[::-1], TOLERANCE) is None
