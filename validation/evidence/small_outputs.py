"""Answers of which the default tolerance tells nothing: smaller than what it allows, or beside a fill value.

A softmax over 4096 has answers of 2e-4, where 1e-2 excuses any; masked scores at -1e9 are the scale of all others.
"""

from __future__ import annotations

import math

import torch

from validation.compare.tolerance import Tolerance
from validation.evidence.perturbation_bound import MOST_ELEMENTS

SHARE = 0.04
"""Of the answers' root mean square: ten unit round-offs of bfloat16 (2**-8), so that other roundings are within it."""
FILL = 1000.0
"""What is so many times as large as the rest of an output is not the rest's scale."""


def own_atols(outputs: list[torch.Tensor], tolerance: Tolerance) -> list[float] | None:
    """The absolute part that each output's own size suggests; None where the tolerance tells as much of all of them.

    Only of the default tolerance: what a request names stands.
    """
    if not tolerance.of_scale:
        return None
    atols, tells = list[float](), True
    for output in outputs:
        whole, rest = _scales(output)
        own = min(tolerance.atol, SHARE * rest) if rest > 0 else tolerance.atol
        tells = tells and own == tolerance.atol and rest * FILL >= whole
        atols.append(own)
    return None if tells else atols


def _scales(output: torch.Tensor) -> tuple[float, float]:
    """The root mean square of what is finite, and of what is not beyond it where that is FILL times smaller."""
    if not (output.is_floating_point() or output.is_complex()) or not 0 < output.numel() <= MOST_ELEMENTS:
        return 0.0, 0.0
    wide = output.detach().to(torch.complex128 if output.is_complex() else torch.float64)  # Of 8 bits there is no abs.
    finite = wide.isfinite()
    sizes = wide.abs().masked_fill_(~finite, 0.0)
    whole = _rms(sizes, finite)
    below = finite & (sizes <= whole)
    rest = _rms(sizes.masked_fill_(~below, 0.0), below)
    return whole, rest if 0 < rest * FILL < whole else whole


def _rms(sizes: torch.Tensor, counted: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(sizes)) / math.sqrt(max(int(counted.sum()), 1))
