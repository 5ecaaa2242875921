"""Whether what was timed beside a submission was slower than it is alone.

A submission's process lives while null windows and the reference's are shot. What it leaves running on the device then
makes both slower: more would be taken off its own time, and it would look faster than the reference (catalogue of
exploits: T31, T32). So both are shot again when its process is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profiling.statistics import standard_error, undisturbed

ERRORS_APART = 4.0
SHARE_APART = {"gated": 0.05, "streamed": 0.05, "host": 0.5}
"""On a host, whatever else runs there comes and goes between the two."""
FLOOR_MS = {"gated": 0.02, "streamed": 0.15, "host": 15.0}
"""Without the gate null windows take 90 to 110 µs longer beside an honest process of several streams. Whatever else
keeps a host busy for a second slows windows by 7 ms (seen in a run of the tests): no evidence."""


def slowed_by(beside_ms: Sequence[float], alone_ms: Sequence[float], kind: str) -> float | None:
    """How many times as long windows took beside the submission as alone; None where that is no more than noise.

    `kind` is how they were taken: gated, streamed, or on the host.
    """
    beside, alone = (np.asarray(taken, dtype=np.float64) for taken in (beside_ms, alone_ms))
    if beside.size < 2 or alone.size < 2 or np.mean(alone) <= 0:
        return None
    beside, alone = beside[undisturbed(beside)], alone[undisturbed(alone)]
    # Means, as times are: a submission may slow every other window, which leaves the median of them as it was.
    gap = float(beside.mean() - alone.mean())
    noise = ERRORS_APART * math.hypot(standard_error(beside), standard_error(alone))
    if not gap > max(noise, SHARE_APART[kind] * float(alone.mean()), FLOOR_MS[kind]):
        return None
    return float(beside.mean() / alone.mean())
