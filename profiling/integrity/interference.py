"""Detects a submission that slows other windows: compares windows measured next to its process with isolated ones.

A submission's process lives while null windows and the reference's windows run. Work that it leaves on the device makes
both slower. Then more is subtracted from its own time, and it looks faster than the reference (catalogue of exploits:
T31, T32). The referee therefore repeats both after that process has ended. A disturbance from outside makes the
submission's own windows longer too, because they alternate with the others.

Names: `concurrent_ms` are windows next to the submission's process, `isolated_ms` those without it, `own_ms` the
submission's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profiling.stats.statistics import Sample, standard_error, undisturbed

JOINT_ERRORS = 4.0
"""Minimum difference of two means in joint standard errors, for a slow-down."""
MIN_SHARE = {"gated": 0.05, "streamed": 0.05, "host": 0.5}
"""Minimum slow-down as a share of the isolated time, by kind of window. On a host, other programs come and go."""
FLOOR_MS = {"gated": 0.05, "streamed": 0.15, "host": 15.0}
"""Minimum slow-down in ms, by kind of window. Gated null windows take 34 and 40 µs longer next to two of eighty honest
processes (H100; docs/measurements.md): 5 % of a window of 1 ms, and little of each call in a shorter one. Streamed ones
take 90 to 110 µs longer next to an honest process of several streams. A host that is busy for a second slows windows by
7 ms (seen in a run of the tests)."""
FLAG_RATIO = {"gated": 1.05, "streamed": 1.5, "host": 1.0}
"""Minimum ratio of concurrent to isolated time for a flag, by kind of window. Below it the slow-down is still corrected
if it is a large part of the submission's own time, as with large outputs that are made in one launch. On an H100,
streamed null windows take 9 to 12 % longer next to some honest processes. They take 25 % longer when the host launches
at its slower pace (docs/measurements.md)."""
HOST_PACE = 1.6
"""Maximum ratio of two honest times of the same streamed windows, if launching takes most of them. A host launches at
two paces: the same calls took 42 and 66 µs within a job, and 8,389 launches 137 and 206 ms (docs/measurements.md)."""
HOST_BOUND_LAUNCH_MS = 0.035
"""Maximum time per launch, in ms, of streamed windows in which launching takes most of the time: PyTorch needs 16 to
33 µs for a launch with its operator (docs/measurements.md)."""
RARE = 0.003
"""Maximum probability of such a number of long concurrent windows by chance, for a correction."""
UNLIKELY = 0.2
"""Maximum probability of that by chance, for more isolated windows."""
UNDISTURBED = 0.25
"""Minimum share of the submission's own windows that count as undisturbed: a kernel gains nothing by longer ones."""


def slowed_by(
    concurrent_ms: Sequence[float],
    isolated_ms: Sequence[float],
    kind: str,
    own_ms: Sequence[float] = (),
    net_ms: float = math.inf,
) -> float | None:
    """The ratio of concurrent to isolated time; None if the difference is noise.

    `kind` is "gated", "streamed" or "host". A submission that slows a few windows by much hides the mean slow-down in
    their spread; therefore the number of long windows is tested, too. `net_ms` is the time that null windows are
    subtracted from: a small part of a null window may be a large part of it.
    """
    concurrent, isolated = _undisturbed(concurrent_ms), _undisturbed(isolated_ms)
    if concurrent.size < 2 or isolated.size < 2 or isolated.mean() <= 0:
        return None
    # Compare means: a submission may slow every other window, which hardly moves the median.
    gap = float(concurrent.mean() - isolated.mean())
    noise = JOINT_ERRORS * math.hypot(standard_error(concurrent), standard_error(isolated))
    if gap > _min_gap_ms(isolated, kind, net_ms) and (
        gap > noise or _chance(concurrent_ms, isolated_ms, kind, own_ms) < RARE
    ):
        return float(concurrent.mean() / isolated.mean())
    return None


def host_sets_pace(isolated_ms: Sequence[float], kind: str, launches: int | None) -> bool:
    """Whether the host's launching takes most of windows of so many launches: their times differ by its pace, too."""
    if kind != "streamed" or not launches or not len(isolated_ms):
        return False
    return float(np.mean(isolated_ms)) / launches <= HOST_BOUND_LAUNCH_MS


def unsure(
    concurrent_ms: Sequence[float],
    isolated_ms: Sequence[float],
    kind: str,
    own_ms: Sequence[float],
    net_ms: float = math.inf,
    *,
    once: bool,
) -> bool:
    """Whether more isolated windows may change the result: they vary much, or many concurrent ones are long.

    A significant difference of means needs no more windows on the first request (`once` is False). On later requests it
    does, because repeated tests find a difference by chance.
    """
    isolated = _undisturbed(isolated_ms)
    if JOINT_ERRORS * standard_error(isolated) > _min_gap_ms(isolated, kind, math.inf):
        return True
    if slowed_by(concurrent_ms, isolated_ms, kind, net_ms=net_ms) is not None:
        return once
    return _chance(concurrent_ms, isolated_ms, kind, own_ms) < UNLIKELY


def undisturbed_by_submission(
    concurrent_ms: Sequence[float], isolated_ms: Sequence[float], kind: str, own_ms: Sequence[float], net_ms: float
) -> bool:
    """Whether concurrent windows equal isolated ones: not slowed, none too long, and more windows would not change
    that."""
    if unsure(concurrent_ms, isolated_ms, kind, own_ms, net_ms, once=True):  # True as well where they are slowed.
        return False
    return limited(concurrent_ms, isolated_ms, kind, [own_ms]) == list(concurrent_ms)


def limited(
    concurrent_ms: Sequence[float],
    isolated_ms: Sequence[float],
    kind: str,
    excess_samples_ms: Sequence[Sequence[float]],
) -> list[float]:
    """Concurrent windows, each cut to the maximum honest time plus the excess of the same rank in other samples.

    It removes the gain from a few long windows that are too few to prove a slow-down. A disturbance from outside makes
    the windows in `excess_samples_ms` (the submission's own, say) long as often, and so hardly anything is cut.
    """
    concurrent = np.array(concurrent_ms, dtype=np.float64)
    limit_ms = _limit_ms(isolated_ms, kind)
    excesses = [_excess(sample_ms, _limit_ms(sample_ms, kind, UNDISTURBED)) for sample_ms in excess_samples_ms]
    for rank, index in enumerate(np.argsort(concurrent)[::-1]):
        allowed_ms = limit_ms + max(_at(excess, rank, concurrent.size) for excess in excesses)
        concurrent[index] = min(concurrent[index], allowed_ms)
    return [float(window_ms) for window_ms in concurrent]


def _chance(concurrent_ms: Sequence[float], isolated_ms: Sequence[float], kind: str, own_ms: Sequence[float]) -> float:
    """The probability that so many of all long windows are concurrent ones (Fisher's exact test, one-sided).

    In the other samples a window is long if it is slower by half the mean excess of the long concurrent windows: a
    disturbance that is small for short windows would not show in long ones.
    """
    limit_ms = _limit_ms(isolated_ms, kind)
    long_ms = [window_ms for window_ms in concurrent_ms if window_ms > limit_ms]
    if not long_ms:
        return 1.0
    isolated = float(np.median(isolated_ms))
    more = (float(np.mean(long_ms)) - isolated) / 2
    own = float(np.quantile(own_ms, UNDISTURBED)) if len(own_ms) else 0.0
    elsewhere = sum(ms > isolated + more for ms in isolated_ms) + sum(ms > own + more for ms in own_ms)
    long, here, there = len(long_ms), len(concurrent_ms), len(isolated_ms) + len(own_ms)
    of_all = long + elsewhere
    ways = sum(math.comb(here, k) * math.comb(there, of_all - k) for k in range(long, min(here, of_all) + 1))
    return ways / math.comb(here + there, of_all)


def _min_gap_ms(isolated: Sample, kind: str, net_ms: float) -> float:
    """Minimum mean slow-down in ms."""
    return max(MIN_SHARE[kind] * min(float(isolated.mean()), net_ms), FLOOR_MS[kind])


def _limit_ms(usual_ms: Sequence[float], kind: str, share: float = 0.5) -> float:
    """Maximum time of an honest window, in ms; at least `share` of `usual_ms` are undisturbed."""
    return (1 + MIN_SHARE[kind]) * float(np.quantile(usual_ms, share)) + FLOOR_MS[kind]


def _excess(windows_ms: Sequence[float], limit_ms: float) -> Sample:
    """The time of each window above the limit, longest first."""
    excess: Sample = np.sort(np.maximum(np.asarray(windows_ms, dtype=np.float64) - limit_ms, 0.0))[::-1]
    return excess


def _at(ranked: Sample, rank: int, size: int) -> float:
    """The value of `ranked` at the relative position of `rank` among `size` values."""
    return float(ranked[rank * ranked.size // size]) if ranked.size else 0.0


def _undisturbed(windows_ms: Sequence[float]) -> Sample:
    windows: Sample = np.asarray(windows_ms, dtype=np.float64)
    return windows[undisturbed(windows)]
