"""The differences of two sources, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LINES = 2000
"""Maximum lines of a source that is compared: the time grows with their product."""
ADDED, REMOVED, PLACE, SAME = "added", "removed", "place", "same"
_KINDS = {"+": ADDED, "-": REMOVED, "@": PLACE}


@dataclass(frozen=True)
class SourceDiff:
    """Lines with their kind (ADDED, REMOVED, PLACE or SAME); `reason` says why there are none."""

    lines: Sequence[tuple[str, str]]
    reason: str | None = None


def source_diff(first: str | None, second: str | None) -> SourceDiff:
    """The lines that the second source lacks or adds; None stands for a source that is not stored."""
    if first is None or second is None:
        return SourceDiff((), "The service did not keep the source of both jobs.")
    before, after = first.splitlines(), second.splitlines()
    if before == after:
        return SourceDiff((), "Both sources are the same.")
    if max(len(before), len(after)) > MAX_LINES:
        return SourceDiff((), f"A source has more than {MAX_LINES} lines: compare them on your own machine.")
    lines = list(difflib.unified_diff(before, after, lineterm=""))[2:]  # Without the names of the files.
    return SourceDiff([(_KINDS.get(line[:1], SAME), line) for line in lines])
