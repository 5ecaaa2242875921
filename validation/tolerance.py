"""How far an answer may be from the expected one: |actual - expected| <= atol + rtol * |expected|.

The request's tolerance (1e-2 and 1e-2 when it names none, as the original service had it) decides the verdict. The
strict one of the dtype is applied beside it and reported. Integers and bools are exact under both.

Strict values: torch.testing.assert_close's defaults. float8 has none there (it would be exact); like float16's rtol it
gets one unit in the last place (2**-3, 2**-2), so that two neighbours of the true value agree, and as atol the smallest
subnormal (2**-9, 2**-16).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from domain.request import DEFAULT_TOLERANCE


@dataclass(frozen=True)
class Tolerance:
    """Absolute and relative part of the allowed difference."""

    atol: float = DEFAULT_TOLERANCE
    rtol: float = DEFAULT_TOLERANCE

    def __str__(self) -> str:
        return f"atol={self.atol:g}, rtol={self.rtol:g}"


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


def strict(dtype: torch.dtype) -> Tolerance:
    """The table's tolerance; EXACT for integers and bools."""
    return STRICT.get(dtype, EXACT)


def applied(dtype: torch.dtype, requested: Tolerance) -> Tolerance:
    """What decides the verdict: the request's tolerance, EXACT for integers and bools."""
    return requested if dtype.is_floating_point or dtype.is_complex else EXACT
