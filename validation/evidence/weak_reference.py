"""Finds tasks that cannot tell right from wrong, by comparing trivial outputs with the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from domain.flags.codes import FlagCode
from domain.flags.flag import Figures, Flag
from validation.compare.bitwise import pieces
from validation.compare.comparison import PIECE, compare, compare_stacked
from validation.compare.tolerance import Tolerance

Pair = tuple[torch.Tensor, torch.Tensor]
"""An expected and a trivial output."""
OTHER_OUTPUT = "the output of another call"
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
        if expected.numel() == 0:
            message = f"output {index} has no elements: every output is right"
            findings.append(Flag(FlagCode.OUTPUT_EMPTY, message, {"output": index}))
            continue
        tried = dict(_trivial(expected, inputs, [outputs[index] for outputs in others]))
        if (answer := next(_passing(tried, tolerance), None)) is not None:
            data: Figures = {"output": index, "trivial_output": answer, "atol": tolerance.atol, "rtol": tolerance.rtol}
            message = f"output {index}: {answer} would pass at {tolerance}"
            findings.append(Flag(FlagCode.TRIVIAL_OUTPUT_PASSES, message, data))
    return findings


class FixedOutputs:
    """Whether outputs fixed beforehand, whatever the inputs are, pass in every call of the reference that was seen.

    The first call is seen at construction. Tried for each output are zeros, ones, a constant (that call's mean) and
    that call's output itself, which this object keeps until `stop`. An output that passes over other distributions
    and other weights too, such as the softmax over one element, is constant by mathematics. A difference under other
    weights excludes nothing, because a kernel may compute such outputs once, when it is constructed.
    """

    def __init__(self, outputs: list[torch.Tensor]) -> None:
        self._fixed = [dict(_constants(output)) | {OTHER_OUTPUT: output} for output in outputs]
        self._surviving = [list(each) for each in self._fixed]
        self._calls = 1
        self._with_other_weights: str | None = None
        self._has_stopped = False

    def see(self, outputs: list[torch.Tensor], tolerances: Sequence[Tolerance], *, drawn: bool = True) -> None:
        """Takes one more call of the reference, with a tolerance for each output.

        Unless its inputs are as `drawn`, outputs that are not finite exclude nothing: the reference may be unsound.
        """
        if self._has_stopped or len(outputs) != len(self._fixed):
            return
        self._calls += 1
        if all(self._surviving) and (drawn or all(_is_finite(output) for output in outputs)):
            self._surviving = self._passing(outputs, tolerances)

    def see_with_other_weights(self, outputs: list[torch.Tensor], tolerance: Tolerance) -> None:
        """Takes a call of the reference with other values for its weights."""
        if not self._has_stopped and len(outputs) == len(self._fixed):
            plausible = self._passing(outputs, [tolerance] * len(outputs))
            self._with_other_weights = "pass" if all(plausible) else "differ"

    def stop(self) -> None:
        """Frees the outputs; later calls change nothing."""
        self._has_stopped, self._fixed = True, []

    def give_up(self) -> None:
        """Rules the flag out: too few calls could be made to tell."""
        self.stop()
        self._surviving = []

    def _passing(self, outputs: list[torch.Tensor], tolerances: Sequence[Tolerance]) -> list[list[str]]:
        """The surviving names of each output that pass in this call."""
        return [
            list(_passing({name: [(output, fixed[name])] for name in names}, tolerance))
            for names, fixed, output, tolerance in zip(self._surviving, self._fixed, outputs, tolerances, strict=True)
        ]

    @property
    def flag(self) -> Flag | None:
        """The flag if fixed outputs passed as all outputs of several calls; None otherwise."""
        if self._calls < 2 or not all(self._surviving) or not self._surviving:
            return None
        names = [names[0] for names in self._surviving]
        message = (
            f"outputs fixed beforehand ({', '.join(dict.fromkeys(names))}) would pass in all {self._calls} calls "
            "of the reference that were tried: the speed-up says nothing"
        )
        data: Figures = {
            "fixed_output": names[0],
            "calls": self._calls,
            "with_other_weights": self._with_other_weights,
        }
        return Flag(FlagCode.FIXED_OUTPUTS_PASS, message, data)


def _constants(expected: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Constant outputs by name: zeros, ones and the mean. Expanded, they take no memory, however large the output."""
    constants: dict[str, complex] = {"all zeros": 0.0, "all ones": 1.0}
    if expected.numel() > 1:
        constants["a constant, the mean of the output,"] = _mean(expected)
    for name, value in constants.items():
        constant = torch.full((), value, dtype=torch.complex128 if expected.is_complex() else torch.float64)
        yield name, constant.to(expected.device, expected.dtype).expand(expected.shape)


def _trivial(
    expected: torch.Tensor, inputs: list[torch.Tensor], elsewhere: list[torch.Tensor]
) -> Iterator[tuple[str, list[Pair]]]:
    """Each trivial output's name, with the pairs of expected and trivial outputs that would all have to agree."""
    is_number = expected.numel() == 1
    for name, trivial in _constants(expected):
        yield name, [(right, trivial) for right in (expected, *(elsewhere if is_number else ()))]
    if elsewhere and all(answer.shape == expected.shape for answer in elsewhere):
        yield "the output of any other call", [(expected, answer) for answer in elsewhere]
    for position, tensor in enumerate(inputs):
        if tensor.shape == expected.shape and tensor.dtype == expected.dtype:
            yield f"a copy of input tensor {position}", [(expected, tensor)]


def _passing(tried: Mapping[str, Sequence[Pair]], tolerance: Tolerance) -> Iterator[str]:
    """The names whose pairs all agree. The corners of all pairs are compared at once: a comparison of its own for each
    costs fifty launches and two waits more (`compare_stacked`)."""
    plausible = {name: pairs for name, pairs in tried.items() if all(_are_alike(*pair) for pair in pairs)}
    every = [pair for pairs in plausible.values() for pair in pairs]
    if not every:
        return
    right, trivial = (
        torch.stack([tensor[(slice(PROBE),) * tensor.dim()] for tensor in side]) for side in zip(*every, strict=True)
    )
    passed = iter([call.passed for call in compare_stacked([right], [trivial], tolerance)])
    promising = {name: all([next(passed) for _ in pairs]) for name, pairs in plausible.items()}
    for name, pairs in plausible.items():
        if promising[name] and all(compare([right], [trivial], tolerance).passed for right, trivial in pairs):
            yield name


def _are_alike(right: torch.Tensor, trivial: torch.Tensor) -> bool:
    return (right.shape, right.dtype, right.device) == (trivial.shape, trivial.dtype, trivial.device)


def _is_finite(tensor: torch.Tensor) -> bool:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return all(bool(piece.to(wide).isfinite().all()) for _, piece, _ in pieces(tensor, tensor, PIECE))


def _mean(tensor: torch.Tensor) -> complex:
    """The mean of all elements; NaN when one is."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    sums = [piece.to(wide).sum() for _, piece, _ in pieces(tensor, tensor, PIECE)]
    return torch.stack(sums).sum().item() / tensor.numel() if sums else 0.0
