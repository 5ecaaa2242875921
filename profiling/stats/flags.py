"""Doubts about a time: each a flag with its evidence, or None where there is none.

A flag never fails a kernel, and honest noise gets none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.gpu.state_summary import CardState
from profiling.stats.statistics import MAX_OUTLIERS, Sample, standard_error

JOINT_ERRORS = 4.0
"""Minimum difference of two times in joint standard errors, for them to differ."""
EARLY_START_MS = 0.07
"""Minimum early start that counts, in ms, as the median of several windows. Honest kernels have -111 to 61 µs, by the
median of six windows (a draw under a seed, on a host with all cards busy; docs/measurements.md). It is 2.3 % of a
window of 3 ms."""
CERTAIN_MS = 0.25
"""Minimum early start of a single window that is no noise, in ms: honest windows have -50 to 80 µs
(docs/measurements.md)."""

SETUP_SLACK = 1.1
"""Maximum ratio of two setup times by chance: setup is mostly copying, which varies by a few percent."""

LISTED = 4
"""Maximum number of processes that a flag names."""
MIB = 1 << 20


@dataclass(frozen=True)
class Misfit:
    """A window in which the runner's event times do not add up to the referee's clock; both in ms for the window."""

    window_ms: float
    events_ms: float


def events_misfit(misfits: Sequence[Misfit], windows: int) -> Flag | None:
    """Windows in which the runner's events claim another time than the referee's clock gives."""
    if not misfits:
        return None
    worst = max(misfits, key=_distance)
    claim = (
        f"its events add up to {duration(worst.events_ms)}"
        if math.isfinite(worst.events_ms) and worst.events_ms > 0
        else "its events give no usable time"
    )
    return Flag(
        FlagCode.EVENTS_MISMATCH,
        f"in {len(misfits)} of {windows} windows the kernel's own event times do not fit the referee's clock (at worst "
        f"{claim} where the clock gives {duration(worst.window_ms)}); there the window alone is the time",
        {
            "mismatched_windows": len(misfits),
            "windows": windows,
            "worst_events_ms": worst.events_ms if math.isfinite(worst.events_ms) else None,
            "worst_window_ms": worst.window_ms,
        },
    )


def inputs_came_again(calls: int) -> Flag | None:
    """The flag for `calls` with reused inputs: drawing took too long, and their content cannot be mixed."""
    return Flag.of(FlagCode.INPUTS_REUSED, calls=calls) if calls else None


@dataclass(frozen=True)
class EarlyStart:
    """The time to add to each window, in ms, 0 where it is noise, and the flag about it."""

    added_ms: Sample
    flag: Flag | None = None


def early_start(early_start_ms: Sequence[float] | Sample) -> EarlyStart:
    """The work of a kernel on the device during the setup of its windows, before the release.

    `early_start_ms` is each window's setup time minus its null window's. A device time-slices the contexts of two
    processes, so that the referee's copies wait while a kernel computes. A window with a certain early start is charged
    for its own. Otherwise a kernel could work ahead in some windows, or delay one very much, and hide in the spread.
    """
    early = np.asarray(early_start_ms, dtype=np.float64)
    certain = early > CERTAIN_MS
    uncertain = early[~certain]
    # Clipped, because a setup that was far too short must not widen the noise either.
    noise = JOINT_ERRORS * standard_error(np.clip(uncertain, -CERTAIN_MS, None))
    level = float(np.median(uncertain)) if uncertain.size > 1 else 0.0
    level = level if level > max(noise, EARLY_START_MS) else 0.0
    added: Sample = np.where(certain, early, level)
    if not level and certain.mean() <= MAX_OUTLIERS:
        return EarlyStart(added)
    typical = float(np.median(added[added > 0]))
    windows = "a window" if (added > 0).all() else f"{_windows(int(certain.sum()))} of {early.size}"
    return EarlyStart(
        added,
        Flag(
            FlagCode.WORK_BEFORE_CLOCK,
            f"making {windows} ready took {duration(typical)} longer beside this kernel's process than beside an idle "
            "one: it computes on inputs before the clock runs, or leaves work on the device; that is added to the time",
            {"typical_ms": typical, "late_windows": int((added > 0).sum()), "windows": early.size},
        ),
    )


def max_setup_ms(isolated_ms: Sequence[float], slack_ms: float = CERTAIN_MS) -> float:
    """Maximum setup time of an honest null window in ms, from setup times without the submission."""
    return SETUP_SLACK * float(np.median(isolated_ms)) + slack_ms


def retaken_windows(repeated: Sequence[str], throttled: Sequence[str], windows: int) -> list[Flag]:
    """Windows taken again, because of the card or as they were late; those kept although it never recovered."""
    flags = []
    if repeated:
        flags.append(
            Flag(
                FlagCode.WINDOWS_RETAKEN,
                f"{_windows(len(repeated))} taken again because {_most(repeated)}",
                {"retaken_windows": len(repeated), "reason": _most(repeated)},
            )
        )
    if throttled:
        flags.append(
            Flag(
                FlagCode.WINDOWS_THROTTLED,
                f"{len(throttled)} of {windows} windows are kept although {_most(throttled)}, as repeating them "
                "did not help: the kernel may be faster than this",
                {"throttled_windows": len(throttled), "windows": windows, "reason": _most(throttled)},
            )
        )
    return flags


def others_on_the_card(state: CardState) -> Flag | None:
    """Processes of strangers on the card while the windows ran."""
    others = state.other_processes
    if not others:
        return None
    listed = ", ".join(
        f"pid {process.pid}" + ("" if process.memory_bytes is None else f" with {process.memory_bytes / MIB:.0f} MiB")
        for process in others[:LISTED]
    )
    more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
    who = "a process that is" if len(others) == 1 else f"{len(others)} processes that are"
    return Flag(
        FlagCode.OTHER_GPU_PROCESSES,
        f"{who} not part of this service had memory on the card ({listed}{more}) and may have slowed the kernel down",
        {"other_processes": len(others), "memory_bytes": sum(process.memory_bytes or 0 for process in others)},
    )


def duration(ms: float) -> str:
    """A time with three significant digits and a suitable unit."""
    if abs(ms) >= 1e3:
        return f"{ms / 1e3:.3g} s"
    return f"{ms:.3g} ms" if abs(ms) >= 1 else f"{ms * 1e3:.3g} µs"


def _distance(misfit: Misfit) -> float:
    """The logarithm of the ratio between claim and clock; infinite for a claim that is no time."""
    if not (math.isfinite(misfit.events_ms) and misfit.events_ms > 0 and misfit.window_ms > 0):
        return math.inf
    return abs(math.log(misfit.events_ms / misfit.window_ms))


def _windows(count: int) -> str:
    return "1 window was" if count == 1 else f"{count} windows were"


def _most(reasons: Sequence[str]) -> str:
    return Counter(reasons).most_common(1)[0][0]
