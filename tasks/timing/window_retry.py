"""Windows that are taken again: of a card that was throttled, or made ready late by whoever it was."""

from __future__ import annotations

from profiling.results.samples import TimeRecord
from profiling.stats.flags import CERTAIN_MS

MOST = 3
LATE = "making it ready took long"


class Retakes:
    """Of one take. `kept` says why windows should have been taken again that were not."""

    def __init__(self) -> None:
        self._repeated: list[str] = []
        self.kept: list[str] = []
        self.throttled = False

    def again(self, reason: str | None, records: list[TimeRecord]) -> bool:
        """Whether the last round is to be taken again, for that reason or as a window of it was late beyond doubt.

        What is late time and again is charged in the end. A kernel that works ahead in some of its windows gains
        nothing by their being taken again: those that are in time show all of its work.
        """
        self.throttled |= reason is not None
        why = reason or (LATE if any(map(_late, records)) else None)
        if why is not None and len(self._repeated) < MOST:
            self._repeated.append(why)
            return True
        if reason is not None:
            self.kept.append(reason)
        return False

    @property
    def told(self) -> list[str]:
        """Why windows were taken again, as far as a reader should know: a busy host makes one late now and then."""
        often = self._repeated.count(LATE) == MOST
        return [why for why in self._repeated if often or why != LATE]


def _late(record: TimeRecord) -> bool:
    """Whether its last window was, and counts as work that was done ahead."""
    early_ms = record.ready_ms[-1] - record.null_ready_ms[-1]
    return record.is_cuda and record.gated and record.charged and early_ms > CERTAIN_MS
