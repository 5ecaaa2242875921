"""Decides which rounds are repeated: those of a throttled card, and those whose setup was delayed."""

from __future__ import annotations

from profiling.results.samples import TimeRecord
from profiling.stats.flags import CERTAIN_MS

MOST = 3
"""Maximum number of repeated rounds."""
LATE = "making it ready took long"


class RetryPolicy:
    """The repetitions of one measurement. `suppressed` has the reasons for repetitions beyond MOST."""

    def __init__(self) -> None:
        self._repeated: list[str] = []
        self.suppressed: list[str] = []
        self.throttled = False

    def should_retry(self, reason: str | None, records: list[TimeRecord]) -> bool:
        """Whether to repeat the last round: for `reason` (throttling), or because the setup of a window was delayed.

        Delays that remain after MOST repetitions count in the time. A kernel that works before the release in some
        windows gains nothing by repetitions: the windows in time show all of its work.
        """
        self.throttled |= reason is not None
        why = reason or (LATE if any(map(_setup_delayed, records)) else None)
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


def _setup_delayed(record: TimeRecord) -> bool:
    """Whether the setup of the last window took so long that it counts as work before the release."""
    early_start_ms = record.setup_ms[-1] - record.null_setup_ms[-1]
    return record.is_cuda and record.gated and record.is_candidate and early_start_ms > CERTAIN_MS
