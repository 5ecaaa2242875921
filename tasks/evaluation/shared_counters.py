"""Counters that pool children share with the worker's main process: one number per child, in shared memory.

The memory exists before the first child is forked, so no message, file or connection is needed. A child that dies
leaves nothing behind: its successor starts with a value of its own.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

from billiard import current_process

MAX_CHILDREN = 64
"""Maximum number of pool children, and so of MAX_WORKERS."""

_UNKNOWN = -1


def _shared() -> memoryview:
    counters = memoryview(mmap.mmap(-1, MAX_CHILDREN * 4)).cast("i")
    for index in range(MAX_CHILDREN):
        counters[index] = _UNKNOWN
    return counters


@dataclass(frozen=True)
class SharedCounters:
    """Number of pooled runners that each pool child has ready; None for a child that reported none."""

    _counters: memoryview = field(default_factory=_shared)

    def write(self, ready_runners: int | None) -> None:
        """Store this pool child's number."""
        index = getattr(current_process(), "index", None)
        if index is not None and index < MAX_CHILDREN:
            self._counters[index] = _UNKNOWN if ready_runners is None else ready_runners

    def ready_runners(self) -> int | None:
        """In the main process: the sum over all children; None if no child reported a number."""
        counts = [count for count in self._counters if count != _UNKNOWN]
        return sum(counts) if counts else None


board = SharedCounters()
