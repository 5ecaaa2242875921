"""Whether windows of another kind took longer than a kernel's usual ones beyond doubt: then theirs is its time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from domain.flags import Flag, FlagCode
from profiling.integrity.interference import FLOOR_MS
from profiling.stats.flags import CERTAIN_MS, ERRORS_APART, duration, most_ready_ms
from profiling.stats.statistics import Sample, error_below, standard_error
from profiling.window.timed_window import Clock, Window

SHARE_APART = 0.05
"""Two times differ when they are further apart than their errors allow (`ERRORS_APART`), by more than this part of the
longer one,"""
DRIFT_MS = 0.025
"""and by more than a call by itself may honestly cost: what a window's overhead differs by between two processes (-16
to 9 µs measured on an H200; docs/measurements.md), and reading as much as the L2 holds from memory, which in a window
of many its first call does for all (60 MB at 4.3 TB/s: 14 µs);"""
NULL_DRIFT_MS = FLOOR_MS | {"gated": DRIFT_MS, "streamed": 0.05}
"""By so much more null windows of one call may take beside an honest process: it is all taken off the one. Without the
gate their median counts, and what else the host has to do is no word against a kernel (`BY_HOST_SHARE`)."""
LATE_MS = 0.05
"""By so much later null windows of one call may be made ready beside an honest process: it hides as much of a call."""
SETTLED = 12
"""Windows of another kind, of which fewer are alike by chance too often: where a call takes one time or another, by
where its memory lies, four of them are all late one time in forty."""

FEWEST = 3
"""Of them, fewer tell nothing."""
SHORTEST, SHORTEST_APART = 0.2, 0.25
"""The shortest of the usual windows, which honest noise and the place where memory lies make shorter than others are:
from so much on that is no longer so."""

BY_HOST_SHARE = 0.5
"""Without the gate the host launches each call, and has two paces: the same calls took 42 to 50 µs for a second and 56
to 66 in the next (docs/measurements.md). By so much of a time it is no evidence, but the longer time all the same."""


class ByHost(NamedTuple):
    """In ms a call: what windows of another kind may take longer by the host's doing, what null windows that a
    submission slowed may hide of them unseen, and what usual ones may be too short by."""

    longer_ms: float = 0.0
    hidden_ms: float = 0.0
    short_ms: float = 0.0


NOT_BY_HOST = ByHost()


class Disagreement(NamedTuple):
    """What windows of another kind show, with both times, what that means of a kernel, and the code for it."""

    code: FlagCode
    shown: str
    meant: str


BY_HOST = "a busy host may take that much longer to launch these calls too, so the time is the longer one"


@dataclass(frozen=True)
class Measured:
    """A time per call in ms, null windows of the same kind taken off, and its standard error.

    Three in four of them take `most_take_ms` at least. `few` where less than SETTLED say so.
    """

    time_ms: float
    error_ms: float
    most_take_ms: float = math.inf
    few: bool = False

    def __str__(self) -> str:
        return f"{duration(self.time_ms)} ± {duration(self.error_ms)}"

    @classmethod
    def of(cls, windows_ms: Sample) -> Measured:
        """A call in windows of many, which took so much each."""
        return cls(float(windows_ms.mean()), standard_error(windows_ms))

    def less(self, other: Measured) -> Measured:
        """Without that other time, whose error is in this one's too."""
        return replace(
            self,
            time_ms=self.time_ms - other.time_ms,
            error_ms=math.hypot(self.error_ms, other.error_ms),
            most_take_ms=self.most_take_ms - other.time_ms,
        )


@dataclass
class OtherWindows:
    """Windows of another kind and the null windows of that kind beside them, in ms by the referee's clock.

    `calls` are in each. `ready_ms` is what making each ready took, `null_ready_ms` what it took for its null window.
    `paired` where each window's own null window is taken off, else the usual one: a few of them that a submission
    slowed say nothing then.
    """

    calls: int = 1
    elapsed_ms: list[float] = field(default_factory=list)
    null_ms: list[float] = field(default_factory=list)
    ready_ms: list[float] = field(default_factory=list)
    null_ready_ms: list[float] = field(default_factory=list)
    paired: bool = True

    def add(self, window: Window, null: Clock) -> None:
        """A window, and the null window beside it."""
        self.elapsed_ms.append(window.elapsed_ms)
        self.null_ms.append(null.elapsed_ms)
        self.ready_ms.append(window.ready_ms)
        self.null_ready_ms.append(null.ready_ms)

    @property
    def net_ms(self) -> Sample:
        """Each window's clock less its null window's."""
        net: Sample = np.asarray(self.elapsed_ms) - self._of_null(self.null_ms)
        return net

    @property
    def early_ms(self) -> Sample:
        """What making each ready took longer than making its null window ready."""
        early: Sample = np.asarray(self.ready_ms) - self._of_null(self.null_ready_ms)
        return early

    def correct_null(self, alone: Sequence[Clock], most_apart_ms: float) -> None:
        """No null window counts for more than it takes without the submission and what may be honest noise.

        Nor does any hide, by having been made ready late, what was worked ahead of the window beside it.
        """
        most, ready = self._honest_ms(alone, most_apart_ms)
        self.null_ms = [min(taken, most) for taken in self.null_ms]
        self.null_ready_ms = [min(taken, ready) for taken in self.null_ready_ms]

    def null_is_honest(self, alone: Sequence[Clock], most_apart_ms: float) -> bool:
        """Whether `correct_null` would leave what null windows say as it is."""
        most, ready = self._honest_ms(alone, most_apart_ms)
        longest, latest = (float(self._of_null(taken).max()) for taken in (self.null_ms, self.null_ready_ms))
        return longest <= most and latest <= ready

    def _of_null(self, taken_ms: Sequence[float]) -> Sample:
        """What null windows took, beside each window."""
        taken = np.asarray(taken_ms, dtype=np.float64)
        return taken if self.paired else np.full(taken.shape, np.median(taken))

    def _honest_ms(self, alone: Sequence[Clock], most_apart_ms: float) -> tuple[float, float]:
        """What an honest null window takes at most, and making it ready."""
        usual_ms = statistics.median(taken.elapsed_ms for taken in alone)
        slack_ms = CERTAIN_MS if self.paired else LATE_MS
        ready_ms = most_ready_ms([taken.ready_ms for taken in alone], slack_ms)
        return (1 + SHARE_APART) * usual_ms + most_apart_ms, ready_ms


@dataclass(frozen=True)
class Believed:
    """The time to report in ms, and why it is not the usual windows' where it is not.

    `unsure` where more windows of the other kind may show that it should be theirs, or that it should not.
    `error_ms` is the standard error of a time that is not the usual windows'. `span_ms` is between what it may be where
    that takes the host, whose part in it is not known.
    """

    time_ms: float
    flag: Flag | None = None
    unsure: bool = False
    error_ms: float = 0.0
    span_ms: tuple[float, float] | None = None


def middle(windows_ms: Sample) -> Measured:
    """The median of windows of another kind, and its error: by all of them or by those below it, whichever is less.

    A process that makes some of them very long on purpose would else hide in their spread what all of them take longer.
    """
    error = min(standard_error(windows_ms), error_below(windows_ms))
    least = float(np.quantile(windows_ms, 0.25))
    return Measured(float(np.median(windows_ms)), error, least, few=windows_ms.size < SETTLED)


def believed(
    usual: Measured,
    other: Measured,
    most_apart_ms: float,
    found: Disagreement,
    by_host: ByHost = NOT_BY_HOST,
    share: float = SHARE_APART,
) -> Believed:
    """The slower of the two where they disagree, with a flag about it; at most so far apart, or by such a share of
    the longer one, none is said to.

    Beyond doubt: by both their errors, and in most of the other windows, as more than half of them may be late by
    chance, all alike. What the host may do, too, is no word against the kernel.
    """
    if not _apart(usual.time_ms, other.time_ms, most_apart_ms, share):
        return Believed(usual.time_ms)
    by_chance = ERRORS_APART * math.hypot(usual.error_ms, other.error_ms)
    most = min(other.most_take_ms, other.time_ms)
    longer_ms = other.time_ms - usual.time_ms
    if not (longer_ms > by_chance and _apart(usual.time_ms, most, most_apart_ms, share)):
        return Believed(usual.time_ms, unsure=True)
    code, meant, least_ms = (
        (FlagCode.HOST_JITTER, BY_HOST, usual.time_ms)
        if longer_ms <= by_host.longer_ms
        else (found.code, found.meant, other.time_ms)
    )
    flag = Flag(code, f"{found.shown.format(longer=other, usual=usual)}: {meant}", figures(usual, other))
    return Believed(other.time_ms, flag, other.few, other.error_ms, (least_ms, other.time_ms + by_host.hidden_ms))


def figures(usual: Measured, other: Measured) -> dict[str, str | float | None]:
    """Both times, as `Flag.data` has them."""
    return {
        "window_call_ms": usual.time_ms,
        "window_call_error_ms": usual.error_ms,
        "longer_ms": other.time_ms,
        "longer_error_ms": other.error_ms,
    }


def shortest(windows_ms: Sample) -> Measured:
    """A fifth of the usual windows take so much at most, and its error by those.

    Who leaves something out in a quarter of them, the least that cannot be somebody else's doing, has done so in these,
    and hides what all of them take on average in their spread.
    """
    level = float(np.quantile(windows_ms, SHORTEST, method="lower"))
    below = windows_ms[windows_ms <= level]
    return Measured(level, float(np.sqrt(np.mean((below - level) ** 2))) / math.sqrt(below.size))


def believed_of(
    windows_ms: Sample, other: Measured, most_apart_ms: float, found: Disagreement, by_host: ByHost
) -> Believed:
    """The same for windows of many: by their mean, and by the shortest of them."""
    return slowest(
        believed(Measured.of(windows_ms), other, most_apart_ms, found, by_host),
        believed(shortest(windows_ms), other, most_apart_ms, found, by_host, SHORTEST_APART),
    )


def slowest(*found: Believed) -> Believed:
    """Of several answers about the same windows: the longest time, and whether more windows may still say another."""
    longest = max(found, key=lambda each: each.time_ms)
    return longest if longest.flag is not None else replace(longest, unsure=any(each.unsure for each in found))


def _apart(usual_ms: float, other_ms: float, most_apart_ms: float, share: float) -> bool:
    """Whether the other time is longer by more than an honest kernel's may be."""
    return other_ms - usual_ms > max(share * max(other_ms, usual_ms), most_apart_ms)
