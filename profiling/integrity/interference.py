"""Whether what was timed beside a submission was slower than it is alone.

A submission's process lives while null windows and the reference's are shot. What it leaves running on the device then
makes both slower: more would be taken off its own time, and it would look faster than the reference (catalogue of
exploits: T31, T32). So both are shot again when its process is gone. What disturbs a card from outside makes the
submission's own windows longer too, which are shot in turn with the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profiling.stats.statistics import Sample, standard_error, undisturbed

ERRORS_APART = 4.0
SHARE_APART = {"gated": 0.05, "streamed": 0.05, "host": 0.5}
"""On a host, whatever else runs there comes and goes between the two."""
FLOOR_MS = {"gated": 0.05, "streamed": 0.15, "host": 15.0}
"""Behind it null windows take 34 and 40 µs longer in two of eighty honest processes of an H100 (docs/measurements.md):
of windows that last a millisecond so much is 5 %, and shorter ones have so many calls that it is little of each.
Without it they take 90 to 110 µs longer beside an honest process of several streams. Whatever else keeps a host busy
for a second slows windows by 7 ms (seen in a run of the tests): no evidence."""
TOLD = {"gated": 1.05, "streamed": 1.5, "host": 1.0}
"""From so many times as long on it is a word against the submission. Less is taken out all the same where it is as
large a part of what the submission takes itself, as where answers are large and made at once. Without the gate null
windows take 9 to 12 % longer beside some honest processes on an H100, and 25 % by the pace at which the host launches
them just then (docs/measurements.md)."""
RARE = 0.003
"""So seldom an honest card has so many long windows beside the submission, and so few otherwise,"""
UNLIKELY = 0.2
"""and as seldom as this is reason to look at more."""
UNDISTURBED = 0.25
"""Of the submission's own windows, at least: nobody gains by longer ones."""


def slowed_by(
    beside_ms: Sequence[float],
    alone_ms: Sequence[float],
    kind: str,
    own_ms: Sequence[float] = (),
    net_ms: float = math.inf,
) -> float | None:
    """How many times as long windows took beside the submission as alone; None where that is no more than noise.

    `kind` is how they were taken: gated, streamed, or on the host. `own_ms` are the submission's own. Who slows some
    windows by much hides in their spread by how much it slows them on average, so that long ones are counted, too.
    `net_ms` is the time that they are taken off, if they are: what is little of them may be much of that.
    """
    beside, alone = _kept(beside_ms), _kept(alone_ms)
    if beside.size < 2 or alone.size < 2 or alone.mean() <= 0:
        return None
    # Means, as times are: a submission may slow every other window, which leaves the median of them as it was.
    gap = float(beside.mean() - alone.mean())
    noise = ERRORS_APART * math.hypot(standard_error(beside), standard_error(alone))
    if gap > _least_ms(alone, kind, net_ms) and (gap > noise or _chance(beside_ms, alone_ms, kind, own_ms) < RARE):
        return float(beside.mean() / alone.mean())
    return None


def unsure(
    beside_ms: Sequence[float],
    alone_ms: Sequence[float],
    kind: str,
    own_ms: Sequence[float],
    net_ms: float = math.inf,
    *,
    once: bool,
) -> bool:
    """Whether more windows shot alone may tell what those leave open: they differ by much, or many beside are long.

    Not where means tell, unless this was asked `once` before: who asks again and again is told something by chance.
    """
    alone = _kept(alone_ms)
    if ERRORS_APART * standard_error(alone) > _least_ms(alone, kind, math.inf):
        return True
    if slowed_by(beside_ms, alone_ms, kind, net_ms=net_ms) is not None:
        return once
    return _chance(beside_ms, alone_ms, kind, own_ms) < UNLIKELY


def alike(
    beside_ms: Sequence[float], alone_ms: Sequence[float], kind: str, own_ms: Sequence[float], net_ms: float
) -> bool:
    """Whether windows beside the submission are as those alone: not slowed, none too long, and no doubt about it."""
    if unsure(beside_ms, alone_ms, kind, own_ms, net_ms, once=True):  # Which it is, too, where they are slowed.
        return False
    return limited(beside_ms, alone_ms, kind, [own_ms]) == list(beside_ms)


def limited(
    beside_ms: Sequence[float], alone_ms: Sequence[float], kind: str, likewise_ms: Sequence[Sequence[float]]
) -> list[float]:
    """Windows beside the submission with what they take too long cut: to what others do, `likewise`, by rank.

    For windows of which too few are long to tell that they were slowed: they give nothing to gain. Where a card is
    disturbed from outside, the submission's own windows are as long as often, and little is cut.
    """
    beside = np.array(beside_ms, dtype=np.float64)
    most = _honest_ms(alone_ms, kind)
    excesses = [_excess(taken_ms, _honest_ms(taken_ms, kind, UNDISTURBED)) for taken_ms in likewise_ms]
    for rank, place in enumerate(np.argsort(beside)[::-1]):
        beside[place] = min(beside[place], most + max(_at(excess, rank, beside.size) for excess in excesses))
    return [float(taken) for taken in beside]


def _chance(beside_ms: Sequence[float], alone_ms: Sequence[float], kind: str, own_ms: Sequence[float]) -> float:
    """That so many of all the long windows are among those beside the submission (Fisher's exact test, one-sided).

    Elsewhere a window is long that takes half as much longer as those do: what makes short ones a little longer cannot
    be seen in long ones, and is evidence of nothing.
    """
    usual = _honest_ms(alone_ms, kind)
    long_ms = [taken for taken in beside_ms if taken > usual]
    if not long_ms:
        return 1.0
    alone = float(np.median(alone_ms))
    more = (float(np.mean(long_ms)) - alone) / 2
    own = float(np.quantile(own_ms, UNDISTURBED)) if len(own_ms) else 0.0
    elsewhere = sum(taken > alone + more for taken in alone_ms) + sum(taken > own + more for taken in own_ms)
    long, here, there = len(long_ms), len(beside_ms), len(alone_ms) + len(own_ms)
    of_all = long + elsewhere
    ways = sum(math.comb(here, k) * math.comb(there, of_all - k) for k in range(long, min(here, of_all) + 1))
    return ways / math.comb(here + there, of_all)


def _least_ms(alone: Sample, kind: str, net_ms: float) -> float:
    """By less than that on average, windows are not slowed."""
    return max(SHARE_APART[kind] * min(float(alone.mean()), net_ms), FLOOR_MS[kind])


def _honest_ms(usual_ms: Sequence[float], kind: str, share: float = 0.5) -> float:
    """What an honest window takes at most, where such a share of those is as usual at least."""
    return (1 + SHARE_APART[kind]) * float(np.quantile(usual_ms, share)) + FLOOR_MS[kind]


def _excess(taken_ms: Sequence[float], most: float) -> Sample:
    """What each takes longer than that, the longest first."""
    excess: Sample = np.sort(np.maximum(np.asarray(taken_ms, dtype=np.float64) - most, 0.0))[::-1]
    return excess


def _at(ranked: Sample, rank: int, size: int) -> float:
    """That of a sample in the place that the rank has among so many."""
    return float(ranked[rank * ranked.size // size]) if ranked.size else 0.0


def _kept(taken_ms: Sequence[float]) -> Sample:
    taken: Sample = np.asarray(taken_ms, dtype=np.float64)
    return taken[undisturbed(taken)]
