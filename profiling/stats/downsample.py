"""Chooses the windows and the digits that a result lists for a plot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 128
"""Maximum number of windows that a result lists."""
DIGITS = 7
"""Number of significant digits of a listed time."""


def evenly_spaced(count: int) -> NDArray[np.int_]:
    """The indexes of the windows to list out of `count`: all, or MOST of them at even distances."""
    indexes: NDArray[np.int_] = np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(int))
    return indexes


def rounded(time_ms: float) -> float:
    """The time with DIGITS significant digits."""
    return float(f"{time_ms:.{DIGITS}g}")
