"""Answers of which the default tolerance tells nothing: smaller than what it allows, or beside a fill value.

A softmax over 4096 has answers of 2e-4, where 1e-2 excuses any; masked scores at -1e9 are the scale of all others.
"""

from __future__ import annotations

import torch

from validation.tolerance import Tolerance

SHARE = 0.04
"""Of the answers' root mean square: six times what bfloat16 is off by, so that other ways of rounding are within it."""
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
    if not (output.is_floating_point() or output.is_complex()) or output.numel() == 0:
        return 0.0, 0.0
    sizes = output.abs().to(torch.float64).reshape(-1)
    sizes = sizes[sizes.isfinite()]
    whole = _rms(sizes)
    rest = _rms(sizes[sizes <= whole])
    return whole, rest if 0 < rest * FILL < whole else whole


def _rms(sizes: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(sizes)) / sizes.numel() ** 0.5 if sizes.numel() else 0.0
