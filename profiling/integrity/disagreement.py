"""Compares a kernel's usual windows with check windows; if those are significantly slower, their time is reported.

A check window measures the same calls in another way: as a single call, or with deferred readback. A kernel cannot skip
or share work in it as it may in usual windows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.integrity.interference import FLOOR_MS
from profiling.stats.flags import CERTAIN_MS, JOINT_ERRORS, duration, max_setup_ms
from profiling.stats.statistics import Sample, error_below, standard_error
from profiling.window.timed_window import Clock, Window

MIN_DIFFERENCE = 0.05
"""Minimum relative difference of two times, as a share of the longer one. They must also differ by more than
`JOINT_ERRORS` joint standard errors, and by more than DRIFT_MS."""
DRIFT_MS = 0.025
"""Maximum honest extra cost of a single call, in ms. Window overhead differs between two processes by -16 to 9 µs
(H200; docs/measurements.md). Reading as much as the L2 holds takes 14 µs (60 MB at 4.3 TB/s); in a window of many calls
the first one does that for all."""
NULL_DRIFT_MS = FLOOR_MS | {"gated": DRIFT_MS, "streamed": 0.05}
"""Maximum slow-down of a single-call null window next to an honest process, in ms, by kind of window. All of it is
subtracted from one call. Without the gate the median counts, and HOST_JITTER_SHARE covers other work of the host."""
LATE_MS = 0.05
"""Maximum setup delay of a single-call null window next to an honest process, in ms. A longer one could hide as much of
a call."""
SETTLED = 12
"""Number of check windows from which their agreement is not chance. A call may take one time or another by its place in
memory; then three windows are all slow once in sixteen jobs."""

FEWEST = 3
"""Minimum number of check windows for a comparison."""
SHORTEST, SHORTEST_SHARE = 0.2, 0.25
"""Quantile of the usual windows that counts as the shortest, and the relative difference from which check windows
contradict it. Noise and the place in memory alone make these windows shorter than others, but by less."""

HOST_JITTER_SHARE = 0.5
"""Share of a streamed time within which a longer one is no evidence against the kernel; the longer one is reported all
the same. A host launches at two paces: the same calls took 42 to 50 µs for a second and 56 to 66 µs in the next
(docs/measurements.md)."""


class HostJitter(NamedTuple):
    """The possible influence of the host on streamed windows, in ms a call.

    Check windows may take `longer_ms` more because of the host. Null windows that a submission slowed may hide
    `hidden_ms` of them. Usual windows may be `short_ms` too short.
    """

    longer_ms: float = 0.0
    hidden_ms: float = 0.0
    short_ms: float = 0.0


NO_HOST_JITTER = HostJitter()


class Disagreement(NamedTuple):
    """The text of a flag: what check windows show, with both times, what that means for the kernel, and the code for
    it."""

    code: FlagCode
    observation: str
    interpretation: str


BY_HOST = "a busy host may take that much longer to launch these calls too, so the time is the longer one"


@dataclass(frozen=True)
class Measured:
    """A time per call in ms, null windows of the same kind subtracted, and its standard error.

    `lower_quartile_ms`: three in four windows take at least that. `few`: it comes from less than SETTLED windows.
    """

    time_ms: float
    error_ms: float
    lower_quartile_ms: float = math.inf
    few: bool = False

    def __str__(self) -> str:
        return f"{duration(self.time_ms)} ± {duration(self.error_ms)}"

    @classmethod
    def of(cls, windows_ms: Sample) -> Measured:
        """The mean of windows of many calls; `windows_ms` is the time per call in each."""
        return cls(float(windows_ms.mean()), standard_error(windows_ms))

    def less(self, other: Measured) -> Measured:
        """This time minus another one, with both errors combined."""
        return replace(
            self,
            time_ms=self.time_ms - other.time_ms,
            error_ms=math.hypot(self.error_ms, other.error_ms),
            lower_quartile_ms=self.lower_quartile_ms - other.time_ms,
        )


@dataclass(frozen=True)
class CheckWindows:
    """Check windows of `calls` calls each, with a null window of the same kind for each, in ms by the referee's clock.

    `setup_ms` and `null_setup_ms` are the setup times of a window and of its null window. With `paired`, each null
    window is subtracted from its own window. Otherwise the median null window is subtracted from all, so that a
    submission gains nothing by slowing a few of them.
    """

    calls: int = 1
    elapsed_ms: list[float] = field(default_factory=list)
    null_ms: list[float] = field(default_factory=list)
    setup_ms: list[float] = field(default_factory=list)
    null_setup_ms: list[float] = field(default_factory=list)
    paired: bool = True

    def add(self, window: Window, null: Clock) -> None:
        self.elapsed_ms.append(window.elapsed_ms)
        self.null_ms.append(null.elapsed_ms)
        self.setup_ms.append(window.setup_ms)
        self.null_setup_ms.append(null.setup_ms)

    @property
    def net_ms(self) -> Sample:
        """Each window's time minus its null window's."""
        net: Sample = np.asarray(self.elapsed_ms) - self._null_times(self.null_ms)
        return net

    @property
    def early_start_ms(self) -> Sample:
        """Each window's setup time minus its null window's; more than noise is work before the release."""
        early: Sample = np.asarray(self.setup_ms) - self._null_times(self.null_setup_ms)
        return early

    def with_limited_nulls(self, isolated: Sequence[Clock], tolerance_ms: float) -> CheckWindows:
        """The windows with null windows of at most what they take without the submission (`isolated`) plus noise.

        Their setup times are limited too: a null window that was set up late would hide work before the release.
        """
        max_null_ms, max_ms = self._max_times(isolated, tolerance_ms)
        return replace(
            self,
            null_ms=[min(ms, max_null_ms) for ms in self.null_ms],
            null_setup_ms=[min(ms, max_ms) for ms in self.null_setup_ms],
        )

    def null_needs_no_limit(self, isolated: Sequence[Clock], tolerance_ms: float) -> bool:
        """Whether `with_limited_nulls` would change nothing."""
        max_null_ms, max_ms = self._max_times(isolated, tolerance_ms)
        longest, latest = (float(self._null_times(ms).max()) for ms in (self.null_ms, self.null_setup_ms))
        return longest <= max_null_ms and latest <= max_ms

    def _null_times(self, null_ms: Sequence[float]) -> Sample:
        """The null time to subtract from each window."""
        times = np.asarray(null_ms, dtype=np.float64)
        return times if self.paired else np.full(times.shape, np.median(times))

    def _max_times(self, isolated: Sequence[Clock], tolerance_ms: float) -> tuple[float, float]:
        """Maximum time and maximum setup time of a null window next to an honest process, in ms."""
        usual_ms = statistics.median(clock.elapsed_ms for clock in isolated)
        slack_ms = CERTAIN_MS if self.paired else LATE_MS
        setup_ms = max_setup_ms([clock.setup_ms for clock in isolated], slack_ms)
        return (1 + MIN_DIFFERENCE) * usual_ms + tolerance_ms, setup_ms


@dataclass(frozen=True)
class Estimate:
    """The time to report in ms; `flag` says why it is the check windows' time, and is None for the usual windows'.

    `unsure`: more check windows may change the decision. `error_ms` is the standard error of the check windows' time.
    `span_ms` bounds the true time where the unknown part of the host matters.
    """

    time_ms: float
    flag: Flag | None = None
    unsure: bool = False
    error_ms: float = 0.0
    span_ms: tuple[float, float] | None = None


def middle(windows_ms: Sample) -> Measured:
    """The median of check windows, and its standard error: of all of them or of those below it, whichever is less.

    With the error of all, a process could make a few windows very long to hide in their spread how slow all of them
    are."""
    error = min(standard_error(windows_ms), error_below(windows_ms))
    least = float(np.quantile(windows_ms, 0.25))
    return Measured(float(np.median(windows_ms)), error, least, few=windows_ms.size < SETTLED)


def reconcile(
    usual: Measured,
    other: Measured,
    tolerance_ms: float,
    disagreement: Disagreement,
    jitter: HostJitter = NO_HOST_JITTER,
    share: float = MIN_DIFFERENCE,
) -> Estimate:
    """The check windows' time, with a flag, if it is significantly longer than the usual windows'; else the usual time.

    A difference of at most `tolerance_ms`, or of `share` of the longer time, is none. A larger one is significant if it
    exceeds both standard errors and shows in three of four check windows: half of them may be slow by chance. Within
    the host's jitter the longer time is reported, without evidence against the kernel.
    """
    if not _exceeds(usual.time_ms, other.time_ms, tolerance_ms, share):
        return Estimate(usual.time_ms)
    by_chance = JOINT_ERRORS * math.hypot(usual.error_ms, other.error_ms)
    most = min(other.lower_quartile_ms, other.time_ms)
    longer_ms = other.time_ms - usual.time_ms
    if not (longer_ms > by_chance and _exceeds(usual.time_ms, most, tolerance_ms, share)):
        return Estimate(usual.time_ms, unsure=True)
    code, interpretation, least_ms = (
        (FlagCode.HOST_JITTER, BY_HOST, usual.time_ms)
        if longer_ms <= jitter.longer_ms
        else (disagreement.code, disagreement.interpretation, other.time_ms)
    )
    message = f"{disagreement.observation.format(longer=other, usual=usual)}: {interpretation}"
    flag = Flag(code, message, figures(usual, other))
    return Estimate(other.time_ms, flag, other.few, other.error_ms, (least_ms, other.time_ms + jitter.hidden_ms))


def figures(usual: Measured, other: Measured) -> dict[str, str | float | None]:
    """Both times, as `Flag.data` has them."""
    return {
        "window_call_ms": usual.time_ms,
        "window_call_error_ms": usual.error_ms,
        "longer_ms": other.time_ms,
        "longer_error_ms": other.error_ms,
    }


def shortest(windows_ms: Sample) -> Measured:
    """The quantile below which a fifth of the usual windows lie, with its error from those.

    A kernel that skips work in a quarter of its windows has done so in these; in the mean it hides in the spread. In
    fewer windows, another process on the machine may be the cause.
    """
    level = float(np.quantile(windows_ms, SHORTEST, method="lower"))
    below = windows_ms[windows_ms <= level]
    return Measured(level, float(np.sqrt(np.mean((below - level) ** 2))) / math.sqrt(below.size))


def reconcile_windows(
    windows_ms: Sample, other: Measured, tolerance_ms: float, disagreement: Disagreement, jitter: HostJitter
) -> Estimate:
    """`reconcile` for windows of many calls, by their mean and by the shortest of them; the longer time counts."""
    return slowest(
        reconcile(Measured.of(windows_ms), other, tolerance_ms, disagreement, jitter),
        reconcile(shortest(windows_ms), other, tolerance_ms, disagreement, jitter, SHORTEST_SHARE),
    )


def slowest(*estimates: Estimate) -> Estimate:
    """The estimate with the longest time; without a flag it is unsure if any of them is."""
    longest = max(estimates, key=lambda estimate: estimate.time_ms)
    return longest if longest.flag is not None else replace(longest, unsure=any(one.unsure for one in estimates))


def _exceeds(usual_ms: float, other_ms: float, tolerance_ms: float, share: float) -> bool:
    """Whether the other time is longer by more than an honest kernel's may be."""
    return other_ms - usual_ms > max(share * max(other_ms, usual_ms), tolerance_ms)
