"""Errors against a float64 reference, and the name of a lower precision that a kernel computes in without saying so.

Three kinds of evidence, strongest first:

1. Every output value is a number of the lower format, as it would be by chance for no kernel that computes in its own.
2. The errors point the same way, element by element, as those of a float64 reference whose inputs were rounded to the
   lower precision (`probes`).
3. The error has the size that the lower precision's arithmetic gives, 0.3 to 8 unit round-offs.

All of it only for a kernel whose error is far above the reference's own, so that a reference which itself computes in
TF32 lets the kernel do so too. An error too large for any of these has no precision's name, but a sentence too: at a
tolerance that is wide for small values even a wrong formula passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from validation.evidence.reduced_precision import UNIT_ROUNDOFF, lower_precisions, plain_name, rounded

FAR_ABOVE = 30.0
"""A kernel's error over the reference's from which on the order of summation no longer explains it."""

FEWEST = 64
"""Elements below which an error's size, direction and grid are luck. That it is `LARGE` is none in float32 or wider."""

ALIKE = 0.5
"""Correlation of error vectors. Of unrelated ones it stays under 4/sqrt(elements), so under this from FEWEST on."""

ONCE = (0.5, 2.0)
"""How often, between these, the kernel's error contains the probe's."""

LEAST_ROUNDOFFS, MOST_ROUNDOFFS = 0.3, 8.0
"""Of operands rounded once the relative rms error is 0.4 to 0.6 unit round-offs; accumulating in it gives more."""

ONE_SIGN = 0.02
"""Of errors of rounding at least that share has the rarer sign; of what is cut off or left out, hardly any."""

LARGE = MOST_ROUNDOFFS * UNIT_ROUNDOFF["bfloat16"]
"""Of an error that no rounding explains. A reference whose own is that large gives noise there (a sum that is zero but
for rounding, say), and beside it nothing is said of the kernel's."""

PIECE = 1 << 21


@dataclass(frozen=True)
class Precision:
    """Of the output with the largest kernel error: rms and largest error over the rms of the expected values.

    `suspected_dtype` names the lower precision, `finding` says in a sentence what speaks for it, or, with
    `suspected_dtype` None, that the error is larger than any explains; both None for a kernel that keeps its dtype's
    precision.
    """

    output: int
    candidate_error: float
    reference_error: float
    candidate_max_error: float
    reference_max_error: float
    suspected_dtype: str | None = None
    finding: str | None = None


Outputs = Sequence[torch.Tensor]


def precision_finding(
    expected64: Outputs, reference: Outputs, candidate: Outputs, probes: Mapping[str, Outputs] | None = None
) -> Precision | None:
    """One call's outputs against the same call in float64; None when no output is floating with finite values.

    `probes` are float64 outputs for inputs rounded by `validation.evidence.reduced_precision.rounded`, by its names.
    Outputs of another shape than expected are left out: the comparison speaks of those.
    """
    found = [
        _output(index, *tensors, {name: outputs[index] for name, outputs in (probes or {}).items()})
        for index, tensors in enumerate(zip(expected64, reference, candidate, strict=True))
        if _comparable(*tensors)
    ]
    known = [precision for precision in found if precision is not None]
    return max(known, key=lambda one: (one.finding is not None, one.candidate_error), default=None)


def _comparable(expected: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor) -> bool:
    floating = candidate.is_floating_point() and candidate.dtype == reference.dtype and expected.is_floating_point()
    return floating and expected.shape == reference.shape == candidate.shape and expected.numel() > 0


def _output(
    index: int,
    expected: torch.Tensor,
    reference: torch.Tensor,
    candidate: torch.Tensor,
    probes: Mapping[str, torch.Tensor],
) -> Precision | None:
    sums = _Sums(expected, reference, candidate)
    if not sums.count or not sums.size:
        return None
    size = sums.size
    found = Precision(
        index,
        sums.candidate / size,
        sums.reference / size,
        sums.candidate_max / size,
        sums.reference_max / size,
    )
    own = str(candidate.dtype).removeprefix("torch.")
    least = max(found.reference_error, UNIT_ROUNDOFF.get(own, math.inf))
    if found.candidate_error < FAR_ABOVE * least:
        return found
    suspected_dtype, evidence = None, ""
    if sums.count >= FEWEST:
        suspected_dtype, evidence = _named(found.candidate_error, expected, candidate, probes)
    if suspected_dtype is None:
        # A few numbers in half precision may be near zero, and the reference's right, both by chance.
        told = sums.count >= FEWEST or bool(lower_precisions(candidate.dtype))
        if not told or not found.reference_error <= LARGE < found.candidate_error:
            return found
        evidence = (
            f"larger than rounding explains, be it to bfloat16 (up to {LARGE:.2g}), so it computes something else, or "
            "loses its digits in differences or long sums; ask for a smaller atol and rtol to see where"
        )
    sentence = (
        f"output {index} is {own}, but its error against float64 is {found.candidate_error:.2g} of the values (rms), "
        f"the reference's {found.reference_error:.2g}: {evidence}"
    )
    return Precision(**{**vars(found), "suspected_dtype": suspected_dtype, "finding": sentence})


def _named(
    error: float, expected: torch.Tensor, candidate: torch.Tensor, probes: Mapping[str, torch.Tensor]
) -> tuple[str | None, str]:
    for precision in lower_precisions(candidate.dtype):
        if _on_grid(candidate, precision) and not _on_grid(expected.to(candidate.dtype), precision):
            name = plain_name(precision)
            return name, f"every one of its {candidate.numel()} values is a {name} number"
    likeness = {name: _likeness(expected, candidate, probe) for name, probe in probes.items()}
    likest = max(likeness, key=lambda name: likeness[name], default=None)
    if likest is not None and likeness[likest] >= ALIKE:
        name = plain_name(likest)
        return name, (
            f"the errors are those of inputs rounded to {name} (correlation {likeness[likest]:.2f} over "
            f"{candidate.numel()} elements)"
        )
    sized = [
        name
        for name in dict.fromkeys(plain_name(precision) for precision in lower_precisions(candidate.dtype))
        if LEAST_ROUNDOFFS <= error / UNIT_ROUNDOFF[name] <= MOST_ROUNDOFFS
    ]
    if not sized:
        return None, ""
    # Coarsest first, so the first unit round-off that the error reaches is the nearest from below.
    nearest = [name for name in sized if UNIT_ROUNDOFF[name] == UNIT_ROUNDOFF[sized[0]]]
    name = " or ".join(nearest)
    said = f"the size that {name} arithmetic gives (or an approximate function of that accuracy)"
    if _rarer_sign(expected, candidate) < ONE_SIGN:
        said += "; but nearly all are of one sign, as where digits are cut off or a part is left out"
    return name, said


def _rarer_sign(expected: torch.Tensor, candidate: torch.Tensor) -> float:
    """The share of the errors that have the sign which fewer have."""
    above = below = 0
    for want, theirs in _pieces(expected, candidate):
        above += int((theirs > want).sum())
        below += int((theirs < want).sum())
    return min(above, below) / max(above + below, 1)


class _Sums:
    """Root mean squares of the expected values and of both errors, over the elements finite in all three."""

    def __init__(self, expected: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor) -> None:
        self.count = 0
        self.reference_max = self.candidate_max = 0.0
        squares = torch.zeros(3, dtype=torch.float64, device=expected.device)
        for want, ours, theirs in _pieces(expected, reference, candidate):
            finite = want.isfinite() & ours.isfinite() & theirs.isfinite()
            want, ours, theirs = want[finite], (ours - want)[finite], (theirs - want)[finite]
            if not want.numel():
                continue
            self.count += want.numel()
            squares += torch.stack([values.square().sum() for values in (want, ours, theirs)])
            self.reference_max = max(self.reference_max, float(ours.abs().max()))
            self.candidate_max = max(self.candidate_max, float(theirs.abs().max()))
        self.size, self.reference, self.candidate = (squares / max(self.count, 1)).sqrt().tolist()


def _on_grid(tensor: torch.Tensor, precision: str) -> bool:
    """Whether all its values are numbers of that format, and enough of them neither zero nor infinite to tell."""
    telling = 0
    for (values,) in _pieces(tensor, dtype=tensor.dtype):
        if not ((rounded(values, precision) == values) | values.isnan()).all():
            return False
        telling += int((values.isfinite() & (values != 0)).sum())
    return telling >= FEWEST


def _likeness(expected: torch.Tensor, candidate: torch.Tensor, probe: torch.Tensor) -> float:
    """Correlation of the kernel's error with the probe's; 0.0 where the one does not contain the other about once.

    What both have in proportion to the expected values is left out: an answer that is only scaled is no rounded one.
    """
    if probe.shape != expected.shape:
        return 0.0
    inner = torch.zeros(3, 3, dtype=torch.float64, device=expected.device)
    for want, theirs, probed in _pieces(expected, candidate, probe):
        finite = want.isfinite() & theirs.isfinite() & probed.isfinite()
        vectors = torch.stack([want[finite], (theirs - want)[finite], (probed - want)[finite]])
        inner += vectors @ vectors.T
    ((size, along, along_probe), (_, error, common), (_, _, likely)) = inner.tolist()
    if size <= 0:
        return 0.0
    common, error, likely = common - along * along_probe / size, error - along**2 / size, likely - along_probe**2 / size
    if error <= 0 or likely <= 0 or not ONCE[0] <= common / likely <= ONCE[1]:
        return 0.0
    return float(common / math.sqrt(error * likely))


def _pieces(*tensors: torch.Tensor, dtype: torch.dtype = torch.float64) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of one shape, cut alike and converted a piece at a time; all on the first one's device."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(tensor[start : start + PIECE].to(flat[0].device, dtype) for tensor in flat)
