"""Decides what is repeated: rounds of a throttled card or with late setup, and measurements whose setup is delayed."""

from __future__ import annotations

from typing import Literal

from profiling.results.samples import WindowSetup
from profiling.stats.flags import CERTAIN_MS
from profiling.window.timed_window import Clock

MOST = 3
"""Maximum number of repeated rounds."""
LATE = "making it ready took long"
MAX_DELAYED = 2
"""Maximum number of gated measurements with delayed setup, for a kernel of one stream; then the delay counts as its
own."""


class RetryPolicy:
    """The repetitions of one measurement. `suppressed` has the reasons for repetitions beyond MOST."""

    def __init__(self) -> None:
        self._repeated: list[str] = []
        self.suppressed: list[str] = []
        self.throttled = False

    def should_retry(self, reason: str | None, *, late: bool) -> bool:
        """Whether to repeat the last round: for `reason` (throttling), or because the setup of a window was late.

        Delays that remain after MOST repetitions count in the time. A kernel that works before the release in some
        windows gains nothing by repetitions: the windows in time show all of its work.
        """
        self.throttled |= reason is not None
        why = reason or (LATE if late else None)
        if why is not None and len(self._repeated) < MOST:
            self._repeated.append(why)
            return True
        if reason is not None:
            self.suppressed.append(reason)
        return False

    @property
    def reasons(self) -> list[str]:
        """The reasons to report. A few delays are left out, because a busy host causes them now and then."""
        often = self._repeated.count(LATE) == MOST
        return [why for why in self._repeated if often or why != LATE]


def is_late(setup: WindowSetup, window: Clock, null: Clock) -> bool:
    """Whether the setup of a window took so long that it counts as work before the release."""
    return setup.kind == "gated" and setup.is_candidate and window.setup_ms - null.setup_ms > CERTAIN_MS


def repeat_delayed(delayed: int, *, one_stream: bool, has_time: bool) -> Literal["gated", "streamed"] | None:
    """How to repeat a gated measurement with delayed setup, the job's `delayed`-th one; None to keep it.

    A process whose work waits at the gate on several streams keeps the device for whole time slices, although it
    computes nothing (docs/measurements.md): it is measured without the gate. With one stream, another process may be
    the cause: then the gate is tried once more and stays. Work before the release counts in any case.
    """
    if not has_time or (one_stream and delayed >= MAX_DELAYED):
        return None
    return "gated" if one_stream else "streamed"
