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
"""Minimum ratio of concurrent to isolated null windows for a flag, by kind of window. Streamed ones take 9 to 12 %
longer next to some honest processes (H100), and 25 % at the host's slower pace (docs/measurements.md)."""
HOST_PACE = 1.6
"""Maximum ratio of two honest times of the same streamed windows, if launching takes most of them. A host launches at
two paces: the same calls took 42 and 66 µs within a job, and 8,389 launches 137 and 206 ms (docs/measurements.md)."""
HOST_BOUND_LAUNCH_MS = 0.035
"""Maximum time per launch, in ms, of streamed windows in which launching takes most of the time: PyTorch needs 16 to
33 µs for a launch with its operator (docs/measurements.md)."""
RARE = 0.003
"""Maximum probability of such a number of long concurrent windows by chance, for a slow-down."""
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
    if gap > _min_gap_ms(float(isolated.mean()), kind, net_ms) and (
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
    if JOINT_ERRORS * standard_error(isolated) > _min_gap_ms(float(isolated.mean()), kind, math.inf):
        return True
    if slowed_by(concurrent_ms, isolated_ms, kind, net_ms=net_ms) is not None:
        return once
    return _chance(concurrent_ms, isolated_ms, kind, own_ms) < UNLIKELY


def max_null_ms(isolated_ms: Sequence[float], kind: str, net_ms: float) -> float:
    """Maximum time that counts of a null window next to a submission, in ms: its isolated time plus honest noise."""
    median_ms = float(np.median(isolated_ms))
    return median_ms + _min_gap_ms(median_ms, kind, net_ms)


def slow_rounds(concurrent_ms: Sequence[float], isolated_ms: Sequence[float], kind: str) -> list[int]:
    """The rounds whose window of the reference took longer than any isolated one, plus honest noise.

    Unlike a null window, the reference may be slow now and then by itself; so the longest isolated window counts.
    """
    limit_ms = _limit_ms(isolated_ms, kind, 1.0)
    return [number for number, window_ms in enumerate(concurrent_ms) if window_ms > limit_ms]


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


def _min_gap_ms(isolated_ms: float, kind: str, net_ms: float) -> float:
    """Minimum mean slow-down in ms."""
    return max(MIN_SHARE[kind] * min(isolated_ms, net_ms), FLOOR_MS[kind])


def _limit_ms(usual_ms: Sequence[float], kind: str, share: float = 0.5) -> float:
    """Maximum time of an honest window, in ms; at least `share` of `usual_ms` are undisturbed."""
    return (1 + MIN_SHARE[kind]) * float(np.quantile(usual_ms, share)) + FLOOR_MS[kind]


def _undisturbed(windows_ms: Sequence[float]) -> Sample:
    windows: Sample = np.asarray(windows_ms, dtype=np.float64)
    return windows[undisturbed(windows)]
