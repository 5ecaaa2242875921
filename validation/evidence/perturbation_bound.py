"""Decides whether a difference on unusual inputs speaks against the candidate or only against the inputs.

The criterion is backward stability: a right output is one that the reference would give in exact arithmetic for inputs
a rounding error away. The referee measures that effect: it reruns the reference on inputs moved at random by an eighth
of the relative tolerance. It allows eight times the resulting change in addition to atol + rtol * |exact|. For a
linear task this is the tolerance relative to the terms. For a task that amplifies (a softmax of logits in the hundreds,
a cancelling difference, a tie) the allowance grows until only a NaN is wrong.

The measured change is each element's own, or the mean over one of its dimensions if that is larger. A single outlier
then excuses only itself, and an element that hardly moved by luck is not judged too strictly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backends.dtypes import is_computed
from domain.value import leaves
from validation.compare.bitwise import bits
from validation.compare.comparison import describe_element
from validation.compare.rounding_boundary import rows_in
from validation.compare.tolerance import Tolerance, strict

SHARE = 8.0
"""Inputs move by rtol divided by this; an output may move this many times as far as it did then. Inputs of a dtype that
is too coarse for such a move move further, and an output accordingly fewer times as far."""
MOVE_SIGNS = (1, -1, 2)
"""Signs of the runs with moved inputs. Opposite signs move inputs oppositely, which breaks a tie both ways. The third
run uses other random moves, because an output may by luck have hardly moved."""
HEADROOM = 16.0
"""Minimum ratio of the dtype's largest number to a reference output that counts: intermediate values may be larger.
None of them is a float8, to the largest of which quantisers scale: a unit in the last place is allowed then."""
MOST_ELEMENTS = 1 << 25
"""Maximum elements of the outputs that are checked: each takes a dozen float64 temporaries."""

Outputs = list[torch.Tensor]


@dataclass(frozen=True)
class NoiseCheck:
    """The number of `wrong` elements and rows among the `judged` ones, and the first wrong element.

    `unsound` says why nothing could be judged.
    """

    wrong: int = 0
    rows: int = 0
    judged: int = 0
    not_finite: int = 0
    first: dict[str, Any] | None = None
    unsound: str | None = None


def move_size(tolerance: Tolerance, inputs: Any) -> float:
    """The relative size of input moves: an eighth of rtol, but at least the rounding error of the coarsest input
    dtype."""
    floating = [tensor for tensor in leaves(inputs, torch.Tensor) if is_computed(tensor)]
    return max([tolerance.rtol / SHARE, *(float(torch.finfo(tensor.dtype).eps) for tensor in floating)])


def check_against_noise(
    reference: Outputs,
    candidate: Outputs | None,
    exact: Outputs | None,
    moves: list[Outputs],
    tolerance: Tolerance,
    *,
    tied: bool = False,
    atols: Sequence[float] | None = None,
    moved_by: float | None = None,
) -> NoiseCheck:
    """Checks the candidate's outputs of one call; with None (the candidate failed) only the reference is checked.

    `exact` is the reference in float64; where it is None the reference stands for it. `moves` are runs of the reference
    with moved inputs. `tied`: many inputs are equal, so a change anywhere may be a choice between them; integers are
    then not judged. `atols` replace the tolerance's atol, one for each output. `moved_by` is the relative size of the
    moves, an eighth of rtol by default: an output may change as far as a move by rtol would change it.
    """
    share = SHARE if moved_by is None else max(tolerance.rtol / moved_by, 1.0)
    runs = [reference, *([exact] if exact is not None else []), *moves]
    if any([tensor.shape for tensor in run] != [tensor.shape for tensor in reference] for run in runs):
        return NoiseCheck(unsound="the reference's answers differ in shape")
    if sum(tensor.numel() for tensor in reference) > MOST_ELEMENTS:
        return NoiseCheck(unsound="the outputs are too large to be examined")
    total = NoiseCheck()
    for index, expected in enumerate(reference):
        output_tolerance = tolerance if atols is None else replace(tolerance, atol=atols[index])
        one = _output(
            index,
            expected,
            candidate[index] if candidate is not None else expected,
            (exact or reference)[index],
            [run[index] for run in moves],
            output_tolerance,
            tied=tied,
            has_exact=exact is not None,
            share=share,
        )
        if one.unsound is not None:
            return one
        total = NoiseCheck(
            total.wrong + one.wrong,
            total.rows + one.rows,
            total.judged + one.judged,
            total.not_finite + one.not_finite,
            total.first or one.first,
        )
    return total if total.judged else NoiseCheck(unsound="rounding alone decides the reference's answer there")


def _output(
    index: int,
    expected: torch.Tensor,
    actual: torch.Tensor,
    exact: torch.Tensor,
    moves: list[torch.Tensor],
    tolerance: Tolerance,
    *,
    tied: bool,
    has_exact: bool,
    share: float,
) -> NoiseCheck:
    if expected.numel() == 0:
        return NoiseCheck()
    if expected.is_complex():
        expected, actual, exact = (torch.view_as_real(tensor) for tensor in (expected, actual, exact))
        moves = [torch.view_as_real(tensor) for tensor in moves]
    if not expected.is_floating_point():
        # Integers need float64 runs: a move below the inputs' own precision breaks no tie, and a tie would pass for
        # settled.
        if tied or not has_exact or any(run.dtype != expected.dtype for run in (exact, *moves)):
            return NoiseCheck()
        settled = bits(expected) == bits(exact)
        for run in moves:
            settled &= bits(expected) == bits(run)
        return _summary(index, settled & (bits(actual) != bits(expected)), settled, expected, actual)
    largest, rtol = torch.finfo(expected.dtype).max / HEADROOM, tolerance.rtol
    exact_values, reference_values, candidate_values = (
        tensor.to(torch.float64) for tensor in (exact, expected, actual)
    )
    if expected.element_size() == 1 and bool((exact_values.isfinite() & (exact_values.abs() > largest)).any()):
        largest, rtol = largest * HEADROOM, max(rtol, strict(expected.dtype).rtol)
    noise = torch.zeros_like(exact_values)
    for run in moves:
        noise = torch.maximum(noise, (run.to(torch.float64) - exact_values).abs())
    settled = exact_values.isfinite() & noise.isfinite()
    if bool(
        (settled & ~reference_values.isfinite()).any()
        or (exact_values.isfinite() & (exact_values.abs() > largest)).any()
    ):
        return NoiseCheck(
            unsound=f"the reference leaves the range of {str(expected.dtype).removeprefix('torch.')} there"
        )
    noise = torch.where(settled, noise, 0.0)
    allowed = tolerance.atol + rtol * exact_values.abs() + share * (noise.amax() if tied else around(noise))
    if bool((settled & ((reference_values - exact_values).abs() > allowed)).any()):
        return NoiseCheck(unsound="the reference is itself not within tolerance of its own float64 run there")
    wrong = settled & ~(candidate_values.isfinite() & ((candidate_values - exact_values).abs() <= allowed))
    return _summary(index, wrong, settled, expected, actual)


def around(noise: torch.Tensor) -> torch.Tensor:
    """Each element's own noise, or the largest of the means along its dimensions."""
    widest = noise
    for dimension, size in enumerate(noise.shape):
        if size > 1:
            widest = torch.maximum(widest, noise.mean(dim=dimension, keepdim=True))
    return widest


def _summary(
    index: int, wrong: torch.Tensor, settled: torch.Tensor, expected: torch.Tensor, actual: torch.Tensor
) -> NoiseCheck:
    count = int(wrong.sum())
    if not count:
        return NoiseCheck(judged=int(settled.sum()))
    first = describe_element(index, int(wrong.reshape(-1).to(torch.uint8).argmax()), expected, actual)
    not_finite = int((wrong & ~actual.to(torch.float64).isfinite()).sum()) if actual.is_floating_point() else 0
    return NoiseCheck(count, rows_in(wrong), int(settled.sum()), not_finite, first)
