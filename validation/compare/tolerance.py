"""Tolerances: an output is right where |actual - expected| <= atol + rtol * |expected|.

The request's tolerance decides the verdict, element by element, like torch.allclose. Without one the service applies
the original service's 1e-2 and 1e-2, with the relative part counted from the output's scale. Counted from each element,
a legitimate TF32 product fails in a few elements near zero (16 of 40 sets of 64x128 @ 128x256 on an H200). The dtype's
strict tolerance is applied as well and reported. Integers and bools must be equal under both. An output that is right
under the strict tolerance is also right under the default one: two neighbouring float8 numbers differ by more than 1e-2
of the scale.

The strict values are torch.testing.assert_close's defaults. These have none for float8, where the values here are one
unit in the last place as rtol (2**-3, 2**-2) and the smallest subnormal as atol (2**-9, 2**-16). Two neighbours of the
true value then agree. float16's rtol is one unit in the last place too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from domain.request import DEFAULT_TOLERANCE


@dataclass(frozen=True)
class Tolerance:
    """Absolute and relative part of the allowed difference.

    `relative_to_scale`: the relative part counts from the output's root mean square where that exceeds the element. A
    sum's rounding error grows with its terms and not with the sum, which may be near zero.

    `element_rtol`: minimum relative part that counts from the element itself.
    """

    atol: float = DEFAULT_TOLERANCE
    rtol: float = DEFAULT_TOLERANCE
    relative_to_scale: bool = False
    element_rtol: float = 0.0

    def __str__(self) -> str:
        return f"atol={self.atol:g}, rtol={self.rtol:g}" + (
            " of the output's typical size" if self.relative_to_scale else ""
        )


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
        return Tolerance(relative_to_scale=True)
    return Tolerance(DEFAULT_TOLERANCE if atol is None else atol, DEFAULT_TOLERANCE if rtol is None else rtol)


def strict(dtype: torch.dtype) -> Tolerance:
    """The table's tolerance; EXACT for integers and bools."""
    return STRICT.get(dtype, EXACT)


def effective_tolerance(dtype: torch.dtype, tolerance: Tolerance) -> Tolerance:
    """The tolerance that decides the verdict: the requested one, with the default widened to the strict one if that is
    larger.

    EXACT for integers and bools.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return EXACT
    least = strict(dtype)
    if not tolerance.relative_to_scale or (least.rtol <= tolerance.rtol and least.atol <= tolerance.atol):
        return tolerance
    return replace(tolerance, atol=max(tolerance.atol, least.atol), element_rtol=least.rtol)
