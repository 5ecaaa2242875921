"""Where in its arguments an answer lies."""

from __future__ import annotations

import torch

from sandbox.runner.output_views import argument_views, detached_outputs
from sandbox.supervisor.messages import ArgumentView, parse_views


def test_views_are_told_by_argument_byte_and_strides() -> None:
    x, y, z = torch.randn(4, 6), torch.ones(3), torch.ones(3, dtype=torch.complex64)
    outputs = [x, x.t(), x[1:, ::2], y[2], x + 1, torch.empty(0), z.conj()]
    told = argument_views(outputs, [1, [x], {"y": y}, z])
    assert told == [[0, 0, 6, 1], [0, 0, 1, 6], [0, 24, 6, 2], [1, 8], None, None, [2, 0, 1]]
    found = parse_views(told, outputs)
    assert found[2] == ArgumentView(0, found[2].form) and found[2].form.shape == (3, 3) and found[2].form.offset == 24


def test_whatever_else_a_runner_says_is_no_view() -> None:
    output = torch.ones(2, 3)
    for wire in (
        None,
        [],
        [None],
        "x",
        [[0, 0, 3]],
        [[0, 0, 3, -1]],
        [[0, True, 3, 1]],
        [[0, 1 << 60, 3, 1]],
        [[0.0, 0, 3, 1]],
    ):
        assert parse_views(wire, [output]) == (None,)


def test_what_lies_in_an_argument_where_it_was_not_told_is_copied() -> None:
    x, y = torch.randn(4, 6), torch.ones(3)
    own = x + 1
    for told in ([None, [1, 0, 1], None], [[0, 0, 6, 1], [1, 0, 1]]):
        first, second, third = detached_outputs([x[1:], y, own], [x, y], told)
        assert first.data_ptr() != x[1:].data_ptr() and torch.equal(first, x[1:])
        assert second is y and third is own
