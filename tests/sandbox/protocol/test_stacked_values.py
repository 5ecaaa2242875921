"""Many values as one form and the stacks of its tensors."""

from __future__ import annotations

import torch

from domain.value import TensorRef
from sandbox.protocol.stacked_values import StackedValues

X, Y = TensorRef("float32", (2,), (1,)), TensorRef("int64", (), (), 512)
STACKS = [torch.arange(6.0).view(3, 2), torch.arange(3)]
VALUES = StackedValues([X, {"y": Y}, 7], STACKS, 3)


def test_each_has_its_own_tensors_and_what_all_have() -> None:
    assert len(VALUES) == 3
    for number, (x, nested, seven) in enumerate(VALUES):
        assert x.tolist() == [2.0 * number, 2.0 * number + 1] and nested["y"].item() == number and seven == 7


def test_the_first_are_as_many_as_there_are_at_most() -> None:
    for asked, given in ((2, 2), (9, 3), (0, 0), (-4, 0)):
        first = VALUES.first(asked)
        assert len(first) == len(list(first)) == given
    assert [int(one[1]["y"]) for one in VALUES.first(2)] == [0, 1]


def test_without_a_tensor_all_are_the_same() -> None:
    assert list(StackedValues([1, "two"], [], 3)) == [[1, "two"]] * 3
