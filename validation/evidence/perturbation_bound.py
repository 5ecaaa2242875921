"""Whether a difference on unusual inputs speaks against the candidate, or only against the inputs.

A right answer is one that the reference would give in exact arithmetic for inputs a rounding error away: backward
stability. How far that may lead is measured, not assumed: the reference runs again on inputs moved at random by an
eighth of the relative tolerance, and eight times what that does to the answer is allowed beside atol + rtol * |exact|.
Where the task is linear this is the tolerance counted from the size of the terms; where it amplifies (a softmax of
logits in the hundreds, a difference of large numbers, a tie) it grows by itself until only a NaN is wrong.

The measure is each element's own, or the mean over one of the dimensions that the element lies in: a single outlier
hides nothing but itself, and an element that moved little by luck is not held to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from domain.value import leaves
from validation.compare.bitwise import bits
from validation.compare.comparison import described
from validation.compare.rounding_boundary import rows_in
from validation.compare.tolerance import Tolerance

SHARE = 8.0
"""Inputs are moved by rtol over this, and the answer may lie this many times as far away as that led."""
TURNS = (1, -1, 2)
"""Runs with moved inputs. Opposite signs are opposite moves, which break a tie both ways; another one, because an
answer may by luck have hardly moved."""
HEADROOM = 16.0
"""A right answer nearer than this to the dtype's largest number tells nothing: intermediate values may be larger."""
MOST_ELEMENTS = 1 << 25
"""Outputs of more elements are not examined: each takes a dozen float64 temporaries."""

Outputs = list[torch.Tensor]


@dataclass(frozen=True)
class Finding:
    """`wrong` elements, in how many `rows`, of how many `judged`; the first; `unsound` says why nothing was judged."""

    wrong: int = 0
    rows: int = 0
    judged: int = 0
    not_finite: int = 0
    first: dict[str, Any] | None = None
    unsound: str | None = None


def step(tolerance: Tolerance, inputs: Any) -> float:
    """By what share to move the inputs: an eighth of rtol, but no less than their coarsest dtype's rounding."""
    floating = [tensor for tensor in leaves(inputs, torch.Tensor) if tensor.is_floating_point()]
    return max([tolerance.rtol / SHARE, *(float(torch.finfo(tensor.dtype).eps) for tensor in floating)])


def examine(
    reference: Outputs,
    candidate: Outputs | None,
    exact: Outputs | None,
    moves: list[Outputs],
    tolerance: Tolerance,
    *,
    tied: bool = False,
    atols: Sequence[float] | None = None,
) -> Finding:
    """The candidate's outputs of one call; None for a candidate that failed: then only the reference is examined.

    `exact` is the reference in float64, None where it could not be run so (then the reference stands for it). `moves`
    are runs of the reference with moved inputs. `tied`: many inputs are equal, so that what moves anywhere may be a
    choice between them, and what is chosen says nothing of the rest; integers are not judged then. `atols` are the
    outputs' own in place of the tolerance's.
    """
    runs = [reference, *([exact] if exact is not None else []), *moves]
    if any([tensor.shape for tensor in run] != [tensor.shape for tensor in reference] for run in runs):
        return Finding(unsound="the reference's answers differ in shape")
    if sum(tensor.numel() for tensor in reference) > MOST_ELEMENTS:
        return Finding(unsound="the outputs are too large to be examined")
    found = Finding()
    for index, expected in enumerate(reference):
        own = tolerance if atols is None else replace(tolerance, atol=atols[index])
        one = _output(
            index,
            expected,
            candidate[index] if candidate is not None else expected,
            (exact or reference)[index],
            [run[index] for run in moves],
            own,
            tied=tied,
            exact_known=exact is not None,
        )
        if one.unsound is not None:
            return one
        found = Finding(
            found.wrong + one.wrong,
            found.rows + one.rows,
            found.judged + one.judged,
            found.not_finite + one.not_finite,
            found.first or one.first,
        )
    return found if found.judged else Finding(unsound="rounding alone decides the reference's answer there")


def _output(
    index: int,
    expected: torch.Tensor,
    actual: torch.Tensor,
    exact: torch.Tensor,
    moves: list[torch.Tensor],
    tolerance: Tolerance,
    *,
    tied: bool,
    exact_known: bool,
) -> Finding:
    if expected.numel() == 0:
        return Finding()
    if expected.is_complex():
        expected, actual, exact = (torch.view_as_real(tensor) for tensor in (expected, actual, exact))
        moves = [torch.view_as_real(tensor) for tensor in moves]
    if not expected.is_floating_point():
        # Moves too small for the inputs' own dtype would break no tie, so that it would pass for settled.
        if tied or not exact_known or any(run.dtype != expected.dtype for run in (exact, *moves)):
            return Finding()
        settled = bits(expected) == bits(exact)
        for run in moves:
            settled &= bits(expected) == bits(run)
        return _summary(index, settled & (bits(actual) != bits(expected)), settled, expected, actual)
    largest = torch.finfo(expected.dtype).max / HEADROOM
    want, ours, theirs = (tensor.to(torch.float64) for tensor in (exact, expected, actual))
    noise = torch.zeros_like(want)
    for run in moves:
        noise = torch.maximum(noise, (run.to(torch.float64) - want).abs())
    settled = want.isfinite() & noise.isfinite()
    if bool((settled & ~ours.isfinite()).any() or (want.isfinite() & (want.abs() > largest)).any()):
        return Finding(unsound=f"the reference leaves the range of {str(expected.dtype).removeprefix('torch.')} there")
    noise = torch.where(settled, noise, 0.0)
    allowed = tolerance.atol + tolerance.rtol * want.abs() + SHARE * (noise.amax() if tied else _around(noise))
    if bool((settled & ((ours - want).abs() > allowed)).any()):
        return Finding(unsound="the reference is itself not within tolerance of its own float64 run there")
    wrong = settled & ~(theirs.isfinite() & ((theirs - want).abs() <= allowed))
    return _summary(index, wrong, settled, expected, actual)


def _around(noise: torch.Tensor) -> torch.Tensor:
    """Each element's own, or the largest of the means along its dimensions."""
    widest = noise
    for dimension, size in enumerate(noise.shape):
        if size > 1:
            widest = torch.maximum(widest, noise.mean(dim=dimension, keepdim=True))
    return widest


def _summary(
    index: int, wrong: torch.Tensor, settled: torch.Tensor, expected: torch.Tensor, actual: torch.Tensor
) -> Finding:
    count = int(wrong.sum())
    if not count:
        return Finding(judged=int(settled.sum()))
    first = described(index, int(wrong.reshape(-1).to(torch.uint8).argmax()), expected, actual)
    not_finite = int((wrong & ~actual.to(torch.float64).isfinite()).sum()) if actual.is_floating_point() else 0
    return Finding(count, rows_in(wrong), int(settled.sum()), not_finite, first)
