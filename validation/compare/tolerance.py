"""How far an answer may be from the expected one: |actual - expected| <= atol + rtol * |expected|.

The request's tolerance decides the verdict, element by element, as torch.allclose has it. A request that names none
gets the original service's 1e-2 and 1e-2, the relative part counted from the output's scale: over hundreds of fresh
input sets an honest TF32 product would else miss it in a few elements near zero (16 of 40 sets of a 64x128 @ 128x256
product on an H200). The strict one of the dtype is applied beside it and reported. Integers and bools are exact under
both. What is right by the strict one is right where the request names none: two neighbouring float8 differ by more than
1e-2 of the scale.

Strict values: torch.testing.assert_close's defaults. float8 has none there (it would be exact); like float16's rtol it
gets one unit in the last place (2**-3, 2**-2), so that two neighbours of the true value agree, and as atol the smallest
subnormal (2**-9, 2**-16).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from domain.request import DEFAULT_TOLERANCE


@dataclass(frozen=True)
class Tolerance:
    """Absolute and relative part of the allowed difference.

    `of_scale`: the relative part counts from the output's root mean square where that is more than the element. A
    sum's rounding error goes with its terms, not with what is left of them, and an element near zero is compared with
    what a reader would call the size of the answer.
    `of_element`: as much of the element itself is allowed in any case, where that is more.
    """

    atol: float = DEFAULT_TOLERANCE
    rtol: float = DEFAULT_TOLERANCE
    of_scale: bool = False
    of_element: float = 0.0

    def __str__(self) -> str:
        return f"atol={self.atol:g}, rtol={self.rtol:g}" + (" of the output's scale" if self.of_scale else "")


EXACT = Tolerance(0.0, 0.0)

STRICT: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(1e-7, 1e-7),
    torch.float32: Tolerance(1e-5, 1.3e-6),
    torch.float16: Tolerance(1e-5, 1e-3),
    torch.bfloat16: Tolerance(1e-5, 1.6e-2),
    torch.complex128: Tolerance(1e-7, 1e-7),
    torch.complex64: Tolerance(1e-5, 1.3e-6),
    torch.float8_e4m3fn: Tolerance(2.0**-9, 2.0**-3),
    torch.float8_e5m2: Tolerance(2.0**-16, 2.0**-2),
}


def requested(atol: float | None, rtol: float | None) -> Tolerance:
    """The request's tolerance. One that names neither value gets the default, counted from the output's scale."""
    if atol is None and rtol is None:
        return Tolerance(of_scale=True)
    return Tolerance(DEFAULT_TOLERANCE if atol is None else atol, DEFAULT_TOLERANCE if rtol is None else rtol)


def strict(dtype: torch.dtype) -> Tolerance:
    """The table's tolerance; EXACT for integers and bools."""
    return STRICT.get(dtype, EXACT)


def applied(dtype: torch.dtype, tolerance: Tolerance) -> Tolerance:
    """What decides the verdict: the request's, by default no less than the strict one; EXACT for integers and bools."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return EXACT
    least = strict(dtype)
    if not tolerance.of_scale or (least.rtol <= tolerance.rtol and least.atol <= tolerance.atol):
        return tolerance
    return replace(tolerance, atol=max(tolerance.atol, least.atol), of_element=least.rtol)
