"""The time that a job's kernels may take on the device, with its one deadline."""

from __future__ import annotations

import time


class TimeBudget:
    """`seconds` for all attempts and processes of a job, of which earlier ones took `spent_s`.

    `start` begins the time of this attempt. Waiting for other jobs while this one holds the device does not count:
    `extend` moves the deadline by it.
    """

    def __init__(self, seconds: float, spent_s: float = 0.0) -> None:
        self.seconds = seconds
        self.spent_s = spent_s
        self.waited_s = 0.0
        self.began = time.monotonic()

    def start(self) -> None:
        """Begins this attempt's time: the kernels are loaded next."""
        self.began = time.monotonic()

    @property
    def deadline(self) -> float:
        """When the kernels have used their time, by time.monotonic."""
        return self.began + self.seconds - self.spent_s + self.waited_s

    def fits(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self.deadline

    def within(self, seconds: float) -> float:
        """A deadline in that many seconds, or the job's own if that is earlier."""
        return min(self.deadline, time.monotonic() + seconds)

    def extend(self, waited_s: float) -> None:
        """Adds the time that the job waited for other jobs."""
        self.waited_s += waited_s
