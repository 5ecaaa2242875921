"""Whether windows of another kind took longer than a kernel's usual ones beyond doubt: then theirs is its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from profiling.flags import ERRORS_APART, duration

SHARE_APART = 0.05
"""Two times differ when they are further apart than their errors allow (`ERRORS_APART`), by more than this part of the
longer one,"""
DRIFT_MS = 0.025
"""and by more than a call by itself may honestly cost: what a window's overhead differs by between two processes (-16
to 9 µs measured on an H200; docs/measurements.md), and reading as much as the L2 holds from memory, which in a window
of many its first call does for all (60 MB at 4.3 TB/s: 14 µs);"""
HELD_BACK_MS = {"gated": 0.1, "streamed": 0.5, "host": math.inf}
"""or than this in a whole window that is held back, in which two processes take turns once more (-20 to 64 µs measured
behind the gate). Without the gate copies begin in other windows while the last calls still run on other streams."""

SINGLE_CALL = (
    "a call by itself takes {longer}, in a window of many only {usual}: calls share work or are done ahead, so the "
    "time is that of the single call"
)
HELD_BACK = (
    "a call takes {longer} in windows whose answers are asked for only when all calls are over, otherwise {usual}: "
    "answers are made there by other means than copying them, so the time is that of the former"
)


@dataclass(frozen=True)
class Measured:
    """A time per call in ms, null windows of the same kind taken off, and its standard error."""

    time_ms: float
    error_ms: float

    def __str__(self) -> str:
        return f"{duration(self.time_ms)} ± {duration(self.error_ms)}"


@dataclass(frozen=True)
class Believed:
    """The time to report in ms, and why it is not the usual windows' where it is not.

    `unsure` where more windows of the other kind may show that it should be theirs.
    """

    time_ms: float
    flag: str | None = None
    unsure: bool = False


def believed(usual: Measured, other: Measured, most_apart_ms: float, sentence: str) -> Believed:
    """The slower of the two where they disagree, with the sentence about it; at most so far apart, none is said to."""
    gap = other.time_ms - usual.time_ms
    if not gap > max(SHARE_APART * max(other.time_ms, usual.time_ms), most_apart_ms):
        return Believed(usual.time_ms)
    if not gap > ERRORS_APART * math.hypot(usual.error_ms, other.error_ms):
        return Believed(usual.time_ms, unsure=True)
    return Believed(other.time_ms, sentence.format(longer=other, usual=usual))
