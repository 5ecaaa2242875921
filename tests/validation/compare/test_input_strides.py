"""What a wrong kernel is told about inputs that are views."""

from __future__ import annotations

import torch

from validation.compare.input_strides import MAX_INPUTS, explain_strides

SLICE = torch.zeros(4, 10)[:, :3]


def test_a_slice_is_named_with_its_strides() -> None:
    explanation = explain_strides([torch.zeros(4, 3), SLICE])
    assert explanation is not None
    assert explanation.startswith("input tensor 1 (shape [4, 3], strides [10, 1]) is not contiguous")


def test_contiguous_inputs_need_no_explanation() -> None:
    assert explain_strides([torch.zeros(4, 3), torch.zeros(1, 3)[:, :3]]) is None
    assert explain_strides([]) is None


def test_a_few_of_many_views_are_named() -> None:
    explanation = explain_strides([SLICE.t()] * (MAX_INPUTS + 1))
    assert explanation is not None
    assert explanation.count("strides [") == MAX_INPUTS
    assert " and others are not contiguous" in explanation
