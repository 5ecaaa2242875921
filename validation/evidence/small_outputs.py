"""Handles outputs that the default tolerance cannot judge: they are smaller than it, or stand beside a fill value.

A softmax over 4096 elements has outputs of 2e-4, where a tolerance of 1e-2 accepts anything. Masked scores of -1e9
raise the scale of all others.
"""

from __future__ import annotations

import math

import torch

from validation.compare.tolerance import Tolerance
from validation.evidence.perturbation_bound import MOST_ELEMENTS

SHARE = 0.04
"""Allowed share of the outputs' rms: ten unit round-offs of bfloat16 (2**-8), so other ways of rounding stay within it.
"""
FILL = 1000.0
"""Minimum ratio to the rest of an output from which a value is a fill value, which does not count for the scale."""


def scaled_atols(outputs: list[torch.Tensor], tolerance: Tolerance) -> list[float] | None:
    """An absolute tolerance for each output, from its own scale; None where the tolerance already judges all of them.

    Applies to the default tolerance only: a tolerance in the request is never narrowed.
    """
    if not tolerance.relative_to_scale:
        return None
    atols, adequate = list[float](), True
    for output in outputs:
        whole, typical = _scales(output)
        scaled = min(tolerance.atol, SHARE * typical) if typical > 0 else tolerance.atol
        adequate = adequate and scaled == tolerance.atol and typical * FILL >= whole
        atols.append(scaled)
    return None if adequate else atols


def _scales(output: torch.Tensor) -> tuple[float, float]:
    """The rms of all finite elements, and the rms without the fill values (the same where there are none)."""
    if not (output.is_floating_point() or output.is_complex()) or not 0 < output.numel() <= MOST_ELEMENTS:
        return 0.0, 0.0
    wide = output.detach().to(torch.complex128 if output.is_complex() else torch.float64)  # 8-bit floats have no abs.
    finite = wide.isfinite()
    sizes = wide.abs().masked_fill_(~finite, 0.0)
    whole = _rms(sizes, finite)
    below = finite & (sizes <= whole)
    typical = _rms(sizes.masked_fill_(~below, 0.0), below)
    return whole, typical if 0 < typical * FILL < whole else whole


def _rms(sizes: torch.Tensor, counted: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(sizes)) / math.sqrt(max(int(counted.sum()), 1))
