"""Measures errors against a float64 reference, and names a lower precision that a kernel silently computes in.

The evidence, strongest first:

1. Every output value is representable in the lower format, which is no coincidence for so many values. 2. The error has
the size of the lower precision's arithmetic, 0.3 to 8 unit round-offs, and lies in many elements.

Only a kernel whose error is far above the reference's gets a finding. A reference that computes in TF32 thus allows the
kernel to do so. An error too large for any precision gets a finding without a name, because a tolerance that is wide
for small values lets even a wrong formula pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from domain.flags.codes import FlagCode
from domain.flags.flag import Figures, Flag
from validation.evidence.reduced_precision import COARSER_OF_SAME_SIZE, UNIT_ROUNDOFF, lower_precisions, rounded

FAR_ABOVE = 30.0
"""Minimum ratio of the kernel's error to the reference's from which the order of summation no longer explains it."""

FEWEST = 64
"""Minimum elements for a finding: in fewer, an error's size, direction and grid are luck. In float32 or wider an error
above `LARGE` counts for any number."""

LEAST_ROUNDOFFS, MOST_ROUNDOFFS = 0.3, 8.0
"""Minimum and maximum relative rms error, in unit round-offs. Operands rounded once give 0.4 to 0.6; accumulating in
the precision gives more."""

ONE_SIGN = 0.02
"""Minimum share of the rarer sign among rounding errors; truncated or omitted parts give hardly any."""

MIN_SHARE = 0.1
"""Minimum share of the elements other than zero and the bounds whose error is an eighth of a unit round-off or more.
Rounding gives 0.5 and more; a wrong mask or index errs in few."""

LARGE = MOST_ROUNDOFFS * UNIT_ROUNDOFF["bfloat16"]
"""Maximum relative error that rounding explains. Where the reference's own error is larger (a sum that is zero but for
rounding, say), the kernel's is not judged."""

PIECE = 1 << 21


@dataclass(frozen=True)
class Precision:
    """Errors of the output with the largest kernel error: rms and maximum, relative to the rms of the expected values.

    `suspected_dtype` names the lower precision, `finding` is a flag with what speaks for it, or, with
    `suspected_dtype` None, that the error is larger than any explains; both None for a kernel that keeps its dtype's
    precision.
    """

    output: int
    candidate_error: float
    reference_error: float
    candidate_max_error: float
    reference_max_error: float
    suspected_dtype: str | None = None
    finding: Flag | None = None


Outputs = Sequence[torch.Tensor]


def precision_finding(expected64: Outputs, reference: Outputs, candidate: Outputs) -> Precision | None:
    """Compares one call's outputs with the same call in float64; None when no output is floating with finite values.

    Outputs of another shape than expected are skipped: the comparison reports those.
    """
    precisions = [
        _output(index, *tensors)
        for index, tensors in enumerate(zip(expected64, reference, candidate, strict=True))
        if _comparable(*tensors)
    ]
    measured = [precision for precision in precisions if precision is not None]
    return max(measured, key=lambda precision: (precision.finding is not None, precision.candidate_error), default=None)


def _comparable(expected: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor) -> bool:
    floating = candidate.is_floating_point() and candidate.dtype == reference.dtype and expected.is_floating_point()
    return floating and expected.shape == reference.shape == candidate.shape and expected.numel() > 0


def _output(index: int, expected: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor) -> Precision | None:
    sums = _Sums(expected, reference, candidate)
    if not sums.count or not sums.size:
        return None
    size = sums.size
    errors = Precision(
        index,
        sums.candidate / size,
        sums.reference / size,
        sums.candidate_max / size,
        sums.reference_max / size,
    )
    dtype_name = str(candidate.dtype).removeprefix("torch.")
    least = max(errors.reference_error, UNIT_ROUNDOFF.get(dtype_name, math.inf))
    coarser = _coarser_format(expected, reference, candidate)
    if coarser is None and errors.candidate_error < FAR_ABOVE * least:
        return errors
    suspected_dtype, evidence = None, ""
    if coarser is not None:
        suspected_dtype, evidence = coarser, _grid_evidence(candidate, coarser)
    elif sums.count >= FEWEST:
        suspected_dtype, evidence = _named(errors.candidate_error, expected, candidate)
    if suspected_dtype is None and not evidence:
        # A few half-precision numbers may be near zero, and the reference's may be right, both by chance.
        can_judge = sums.count >= FEWEST or bool(lower_precisions(candidate.dtype))
        if not can_judge or not errors.reference_error <= LARGE < errors.candidate_error:
            return errors
        evidence = (
            f"larger than rounding explains, be it to bfloat16 (up to {LARGE:.2g}), so it computes something else, or "
            "loses its digits in differences or long sums; if it passed, a smaller atol and rtol show where"
        )
    sentence = (
        f"output {index} is {dtype_name}, but its error against float64 is {_part(errors.candidate_error)}, the "
        f"reference's {errors.reference_error:.2g} of them: {evidence}"
    )
    code = FlagCode.UNEXPLAINED_ERROR if suspected_dtype is None else FlagCode.LOWER_PRECISION
    data: Figures = {
        "output": index,
        "dtype": dtype_name,
        "error_rms": errors.candidate_error,
        "reference_error_rms": errors.reference_error,
        "suspected_dtype": suspected_dtype,
    }
    return Precision(**{**vars(errors), "suspected_dtype": suspected_dtype, "finding": Flag(code, sentence, data)})


def _part(error: float) -> str:
    """An error relative to the root mean square of the values."""
    return "as large as the values" if error >= 1 else f"{error:.2g} of the values (rms)"


def _named(error: float, expected: torch.Tensor, candidate: torch.Tensor) -> tuple[str | None, str]:
    for precision in lower_precisions(candidate.dtype):
        if _is_only_on_grid(expected, candidate, precision):
            return precision, _grid_evidence(candidate, precision)
    sized = [
        name
        for name in lower_precisions(candidate.dtype)
        if LEAST_ROUNDOFFS <= error / UNIT_ROUNDOFF[name] <= MOST_ROUNDOFFS
    ]
    if not sized:
        return None, ""
    share = _share_of_errors(expected, candidate, UNIT_ROUNDOFF[sized[0]] / 8)
    if share < MIN_SHARE:
        return None, (
            f"only {share:.2g} of the elements other than 0 and the bounds err, so it is no rounding; "
            "look where they lie"
        )
    # Coarsest first, so the first unit round-off that the error reaches is the nearest from below.
    nearest = [name for name in sized if UNIT_ROUNDOFF[name] == UNIT_ROUNDOFF[sized[0]]]
    name = " or ".join(nearest)
    evidence = f"the size that {name} arithmetic gives (or an approximate function of that accuracy)"
    if _rarer_sign(expected, candidate) < ONE_SIGN:
        evidence += "; but nearly all are of one sign, as where digits are cut off or a part is left out"
    return name, evidence


def _share_of_errors(expected: torch.Tensor, candidate: torch.Tensor, least: float) -> float:
    """The share of elements whose error is at least that part of them, among those that are neither zero nor at a
    bound of the output: what a clamp or a tanh cuts off is exact in any precision."""
    erring = counted = 0
    low, high = expected.to(candidate.dtype).aminmax()
    for want, actual in _pieces(expected, candidate):
        rounded = want.to(candidate.dtype)
        free = (want != 0) & (rounded != low) & (rounded != high)
        erring += int(((actual - want).abs() >= least * want.abs())[free].sum())
        counted += int(free.sum())
    return erring / max(counted, 1)


def _rarer_sign(expected: torch.Tensor, candidate: torch.Tensor) -> float:
    """The share of the errors with the less common sign."""
    above = below = 0
    for want, actual in _pieces(expected, candidate):
        above += int((actual > want).sum())
        below += int((actual < want).sum())
    return min(above, below) / max(above + below, 1)


class _Sums:
    """Root mean squares of the expected values and of both errors, over the elements finite in all three."""

    def __init__(self, expected: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor) -> None:
        self.count = 0
        self.reference_max = self.candidate_max = 0.0
        squares = torch.zeros(3, dtype=torch.float64, device=expected.device)
        for want, reference_error, candidate_error in _pieces(expected, reference, candidate):
            finite = want.isfinite() & reference_error.isfinite() & candidate_error.isfinite()
            want, reference_error, candidate_error = (
                want[finite],
                (reference_error - want)[finite],
                (candidate_error - want)[finite],
            )
            if not want.numel():
                continue
            self.count += want.numel()
            squares += torch.stack([values.square().sum() for values in (want, reference_error, candidate_error)])
            self.reference_max = max(self.reference_max, float(reference_error.abs().max()))
            self.candidate_max = max(self.candidate_max, float(candidate_error.abs().max()))
        self.size, self.reference, self.candidate = (squares / max(self.count, 1)).sqrt().tolist()


def _is_only_on_grid(expected: torch.Tensor, candidate: torch.Tensor, precision: str) -> bool:
    """Whether all of the candidate's values are representable in that format, and not all of the expected ones."""
    return _on_grid(candidate, precision) and not _on_grid(expected.to(candidate.dtype), precision)


def _coarser_format(expected: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor) -> str | None:
    """The coarser format of the same size that has all of the candidate's values, and not all of the others'."""
    coarser = COARSER_OF_SAME_SIZE.get(candidate.dtype)
    if coarser is None or _on_grid(reference, coarser) or not _is_only_on_grid(expected, candidate, coarser):
        return None
    return coarser


def _grid_evidence(candidate: torch.Tensor, precision: str) -> str:
    return f"every one of its {candidate.numel()} values is a {precision} number"


def _on_grid(tensor: torch.Tensor, precision: str) -> bool:
    """Whether all values are representable in that format and at least FEWEST are neither zero nor infinite."""
    counted = 0
    # float32 has all values of the narrower dtypes, and operations that they lack.
    dtype = tensor.dtype if tensor.element_size() > 4 else torch.float32
    for (values,) in _pieces(tensor, dtype=dtype):
        if not ((rounded(values, precision) == values) | values.isnan()).all():
            return False
        counted += int((values.isfinite() & (values != 0)).sum())
    return counted >= FEWEST


def _pieces(*tensors: torch.Tensor, dtype: torch.dtype = torch.float64) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cuts tensors of one shape into the same pieces, converted one at a time on the first tensor's device."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(tensor[start : start + PIECE].to(flat[0].device, dtype) for tensor in flat)
