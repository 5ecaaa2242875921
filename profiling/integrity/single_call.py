"""Whether a kernel's calls take longer by themselves than in windows of many (catalogue of exploits: T20)."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

import numpy as np

from domain.flags import Flag, FlagCode
from profiling.integrity.disagreement import (
    BY_HOST_SHARE,
    DRIFT_MS,
    FEWEST,
    LATE_MS,
    NOT_BY_HOST,
    NULL_DRIFT_MS,
    SHARE_APART,
    Believed,
    ByHost,
    Disagreement,
    Measured,
    OtherWindows,
    believed,
    believed_of,
    figures,
    middle,
    slowest,
)
from profiling.stats.flags import ERRORS_APART
from profiling.stats.statistics import Sample, standard_error

SETTLED_STREAMED = 48
"""Without the gate the shortest of them counts, which a host may keep from being short for a while."""
BESIDE_MS = 0.01
"""By so much more than the reference's may a candidate's take longer by themselves, or by 5 % of what the reference
takes, as its calls may differ from one to the next. Both sides of an honest comparison differ by -5 to 7 µs (59 pairs
on H100s; docs/measurements.md)."""
WEIGHT_BYTES_PER_MS = 4e8
"""And by what its weights cost that only the first call of a window of many reads from memory, and each call by itself:
so fast are they read at least. A product of 1024² in float32 takes 7.6 µs longer for 4 MiB of them, its reference,
which is bound by arithmetic, none (docs/measurements.md)."""
WARM_MS, COLD_MS = -0.018, 0.014
"""Between these the reference's is believed: what was seen at least of 136 honest ones, of -18 to 9 µs, and what it
takes to read all that the L2 holds. It may be longer by the candidate's doing, whose process is there beside it."""
AHEAD_MS = {"gated": 0.1, "streamed": LATE_MS, "host": math.inf}
"""From so much on, what making a call by itself ready took longer is work on its inputs before the gun: an honest one
differs by -50 to 80 µs (docs/measurements.md). On the host, where others run at the same time, nothing is known."""
LEAST_LAUNCH_MS = 1.2e-3
"""No kernel is launched behind another sooner: 1.67 µs is the least seen on an H200 (docs/measurements.md)."""
FASTEST_LAUNCH_MS = 0.5e-3
"""Nor, be there several queues, does a call take less than this for each launch in a window of many."""

BY_HOST_MS = 0.2
"""Without the gate a call by itself runs code that the host has not run for a millisecond. By so much more than in a
window of many honest ones have taken (docs/measurements.md): it is no evidence, but the longer time all the same."""

SHARED = "calls share work or are done ahead, so the time is that of the single call"
SINGLE_CALL = Disagreement(
    FlagCode.SINGLE_CALL_SLOWER, "a call by itself takes {longer}, in a window of many only {usual}", SHARED
)
SINGLE_CALL_BESIDE = Disagreement(
    FlagCode.SINGLE_CALL_SLOWER,
    "a call by itself takes {longer}, less what the reference's takes longer than in a window of many, and in such a "
    "window only {usual}",
    SHARED,
)
LESS_THAN_LAUNCHES = (
    "a call takes {usual} in a window of many, which is less than {launches}, and by itself {longer}: its work is done "
    "in another call, so the time is that of the single call"
)


def single_call(single: OtherWindows, kind: str) -> Measured | None:
    """A call by itself, with what was begun before the gun; None where too few were taken.

    Without the gate it waits for a host that has just woken, now and then for long; none takes less than its own work,
    as each is given inputs that nobody has seen: the shortest counts.
    """
    if len(single.elapsed_ms) < FEWEST:
        return None
    taken = single.net_ms + np.where(single.early_ms < AHEAD_MS[kind], 0.0, single.early_ms)
    found = middle(taken)
    if kind != "streamed":
        return found
    return replace(found, time_ms=float(taken.min()), few=len(single.elapsed_ms) < SETTLED_STREAMED)


def shown_ms(single: OtherWindows) -> float | None:
    """What a call by itself took, for information; None where that is less than a null window knows."""
    middle_ms = float(np.median(single.net_ms)) if single.elapsed_ms else 0.0
    return middle_ms if middle_ms > 0 else None


@dataclass(frozen=True)
class Honest:
    """What an honest kernel's call behind the gate takes longer by itself than in a window of many.

    What is handed in right behind it need not be read from memory, so that this is less than nothing for most.
    Another's may be longer by `most_apart_ms` than that. Some calls are late by chance, which is no part of what they
    take `usually_ms` longer: that counts for the time of one that is not believed.
    """

    longer: Measured
    most_apart_ms: float
    usually_ms: float


def honest(usual: Measured, single: OtherWindows, weight_bytes: int = 0) -> Honest | None:
    """By a reference's windows; None where too few are of one call. The task has weights of so many bytes.

    By the mean of these, as that of the others is: its calls may take one time or another.
    """
    if len(single.elapsed_ms) < FEWEST:
        return None
    net = single.net_ms
    mean_ms, median_ms = (
        float(np.clip(level - usual.time_ms, WARM_MS, COLD_MS)) for level in (net.mean(), np.median(net))
    )
    error_ms = math.hypot(standard_error(net), usual.error_ms)
    weights_ms = min(weight_bytes / WEIGHT_BYTES_PER_MS, COLD_MS)
    apart_ms = max(BESIDE_MS + weights_ms, SHARE_APART * usual.time_ms)
    return Honest(Measured(mean_ms, error_ms), apart_ms, min(mean_ms, median_ms))


def by_host(single: OtherWindows, kind: str, null_ms: float) -> ByHost:
    """What the host may make of calls by themselves; `null_ms` is what usual null windows take a call."""
    if kind != "streamed":
        return NOT_BY_HOST
    hidden_ms = SHARE_APART * statistics.median(single.null_ms) + NULL_DRIFT_MS[kind]
    return ByHost(BY_HOST_MS, hidden_ms, BY_HOST_SHARE * null_ms)


def believed_alone(
    windows: Sample, single: Measured, host: ByHost, beside: Honest | None = None, launches: int = 0
) -> Believed:
    """The usual windows' time, or a single call's where that is longer beyond doubt: than they, or a part of them.

    By more than an honest kernel's is `beside` it; where that is not known, by more than any may be. Nor is a call
    believed to take less than so many `launches` do.
    """
    usual = Measured.of(windows)
    found = believed_of(windows, single, DRIFT_MS, SINGLE_CALL, host)
    if beside is not None:
        told = believed(usual, single.less(beside.longer), beside.most_apart_ms, SINGLE_CALL_BESIDE)
        single = single.less(replace(beside.longer, time_ms=beside.usually_ms))
        if told.flag is not None:  # Then it is told with the time that it is given.
            told = believed(usual, single, beside.most_apart_ms, SINGLE_CALL_BESIDE)
        found = slowest(found, told)
    # Without a launch its time is none, of which noise may be less.
    if launches and usual.time_ms + ERRORS_APART * usual.error_ms + host.short_ms < launches * FASTEST_LAUNCH_MS:
        single = replace(single, time_ms=max(single.time_ms, launches * LEAST_LAUNCH_MS))
        message = LESS_THAN_LAUNCHES.format(longer=single, usual=usual, launches=_launches(launches))
        flag = Flag(FlagCode.FASTER_THAN_LAUNCHES, message, figures(usual, single) | {"launches": launches})
        found = slowest(found, Believed(single.time_ms, flag, single.few, single.error_ms))
    return found


def _launches(count: int) -> str:
    return "a launch does" if count == 1 else f"its {count} launches do"
