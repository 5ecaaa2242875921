"""Finds tasks that cannot tell right from wrong, by comparing trivial outputs with the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from domain.flags import Figures, Flag, FlagCode
from validation.compare.bitwise import pieces
from validation.compare.comparison import PIECE, compare
from validation.compare.tolerance import Tolerance

PROBE = 8
"""Leading elements of each dimension that are compared first: almost every trivial output fails there."""


def weak_reference(
    expected_outputs: list[torch.Tensor],
    inputs: list[torch.Tensor],
    tolerance: Tolerance,
    others: Sequence[list[torch.Tensor]] = (),
) -> list[Flag]:
    """One flag for each output that a kernel doing no work would get right at that tolerance; empty if none.

    The trivial outputs are zeros, ones, a constant (the output's mean), and a copy of each input of the same shape and
    dtype. The outputs for `others`, calls with other inputs, are tried too, and would all have to pass. A single
    number may be near zero or one by chance, so zeros and ones must also pass for every call in `others`. Its mean is
    not tried, because no kernel knows it beforehand.
    """
    findings = []
    for index, expected in enumerate(expected_outputs):
        elsewhere = [outputs[index] for outputs in others]
        answer = next(
            (
                name
                for name, tried in _trivial(expected, inputs, elsewhere)
                if all(_passes(right, trivial, tolerance) for right, trivial in tried)
            ),
            None,
        )
        if expected.numel() == 0:
            message = f"output {index} has no elements: every output is right"
            findings.append(Flag(FlagCode.OUTPUT_EMPTY, message, {"output": index}))
        elif answer is not None:
            data: Figures = {"output": index, "trivial_output": answer, "atol": tolerance.atol, "rtol": tolerance.rtol}
            message = f"output {index}: {answer} would pass at {tolerance}"
            findings.append(Flag(FlagCode.TRIVIAL_OUTPUT_PASSES, message, data))
    return findings


def _trivial(
    expected: torch.Tensor, inputs: list[torch.Tensor], elsewhere: list[torch.Tensor]
) -> Iterator[tuple[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """Each trivial output's name, with the pairs of expected and trivial outputs that would all have to agree."""
    is_number = expected.numel() == 1
    # Expanded constants take no memory, however large the output.
    constants: dict[str, complex] = {"all zeros": 0.0, "all ones": 1.0}
    if expected.numel() > 1:
        constants["a constant, the mean of the output,"] = _mean(expected)
    for name, value in constants.items():
        constant = torch.full((), value, dtype=torch.complex128 if expected.is_complex() else torch.float64)
        trivial = constant.to(expected.device, expected.dtype).expand(expected.shape)
        yield name, [(right, trivial) for right in (expected, *(elsewhere if is_number else ()))]
    if elsewhere and all(answer.shape == expected.shape for answer in elsewhere):
        yield "the output of any other call", [(expected, answer) for answer in elsewhere]
    for position, tensor in enumerate(inputs):
        if tensor.shape == expected.shape and tensor.dtype == expected.dtype:
            yield f"a copy of input tensor {position}", [(expected, tensor)]


def _passes(expected: torch.Tensor, trivial: torch.Tensor, tolerance: Tolerance) -> bool:
    corner = tuple(slice(0, PROBE) for _ in expected.shape)
    return (
        compare([expected[corner]], [trivial[corner]], tolerance).passed
        and compare([expected], [trivial], tolerance).passed
    )


def _mean(tensor: torch.Tensor) -> complex:
    """The mean of all elements; NaN when one is."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    sums = [piece.to(wide).sum() for _, piece, _ in pieces(tensor, tensor, PIECE)]
    return torch.stack(sums).sum().item() / tensor.numel() if sums else 0.0
