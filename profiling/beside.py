"""Whether what was timed beside a submission was slower than it is alone.

A submission's process lives while null windows and the reference's are shot. What it leaves running on the device then
makes both slower: more would be taken off its own time, and it would look faster than the reference (catalogue of
exploits: T31, T32). So both are shot again when its process is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profiling.statistics import Sample, error_below, standard_error, undisturbed

ERRORS_APART = 4.0
SHARE_APART = {"gated": 0.05, "streamed": 0.05, "host": 0.5}
"""On a host, whatever else runs there comes and goes between the two."""
FLOOR_MS = {"gated": 0.02, "streamed": 0.15, "host": 15.0}
"""Without the gate null windows take 90 to 110 µs longer beside an honest process of several streams. Whatever else
keeps a host busy for a second slows windows by 7 ms (seen in a run of the tests): no evidence."""


def slowed_by(
    beside_ms: Sequence[float], alone_ms: Sequence[float], kind: str, own_ms: Sequence[float] = ()
) -> float | None:
    """How many times as long windows took beside the submission as alone; None where that is no more than noise.

    `kind` is how they were taken: gated, streamed, or on the host. `own_ms` are the submission's own windows, shot in
    turn with those beside it.
    """
    beside, alone = _kept(beside_ms), _kept(alone_ms)
    if beside.size < 2 or alone.size < 2 or alone.mean() <= 0:
        return None
    # Means, as times are: a submission may slow every other window, which leaves the median of them as it was.
    gap = float(beside.mean() - alone.mean())
    noise = ERRORS_APART * math.hypot(_error(beside, _kept(own_ms)), standard_error(alone))
    if not gap > max(noise, SHARE_APART[kind] * float(alone.mean()), FLOOR_MS[kind]):
        return None
    return float(beside.mean() / alone.mean())


def slowed_now_and_then(
    beside_ms: Sequence[float], alone_ms: Sequence[float], kind: str, own_ms: Sequence[float]
) -> bool:
    """Whether they are slowed only in so far as the submission's own windows have no such tail.

    A kernel that is slow now and then by itself looks like it until more windows have been shot alone.
    """
    told = slowed_by(beside_ms, alone_ms, kind, own_ms) is not None
    return told and slowed_by(beside_ms, alone_ms, kind) is None


def too_noisy(alone_ms: Sequence[float], kind: str) -> bool:
    """Whether windows shot alone differ by too much to tell that others were slowed."""
    alone = _kept(alone_ms)
    return ERRORS_APART * standard_error(alone) > max(SHARE_APART[kind] * float(alone.mean()), FLOOR_MS[kind])


def at_most_ms(alone_ms: Sequence[float], kind: str) -> float:
    """What an honest window of that kind takes beside a submission."""
    return (1 + SHARE_APART[kind]) * float(np.median(alone_ms)) + FLOOR_MS[kind]


def _kept(taken_ms: Sequence[float]) -> Sample:
    taken: Sample = np.asarray(taken_ms, dtype=np.float64)
    return taken[undisturbed(taken)]


def _error(beside: Sample, own: Sample) -> float:
    """The error of the mean by all windows; by those below their median where the submission's own have no such tail.

    What disturbs a card from outside disturbs all windows. Who slows some of the others' by much would else hide in
    their spread what they take longer on average.
    """
    if own.size < 2 or not own.mean() > 0:
        return standard_error(beside)
    from_outside = standard_error(own) * max(1.0, float(beside.mean() / own.mean()))
    return min(standard_error(beside), max(error_below(beside), from_outside))
