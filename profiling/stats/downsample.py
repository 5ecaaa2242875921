"""Which of a kernel's windows an answer shows, for a picture of them, and how finely."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 128
DIGITS = 7


def places(count: int) -> NDArray[np.int_]:
    """Of so many windows, those shown: all, or MOST of them evenly."""
    evenly: NDArray[np.int_] = np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(int))
    return evenly


def rounded(time_ms: float) -> float:
    """With as many digits as are shown."""
    return float(f"{time_ms:.{DIGITS}g}")
