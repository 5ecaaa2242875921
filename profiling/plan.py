"""How many calls a window holds and how many windows there are."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A window should be long against what a null window varies by (a few µs on an H200, tens of µs on a host's clock).
TARGET_MS = {"cuda": 4.0, "cpu": 10.0}

# The device's launch queue holds about 1000 entries (measured: docs/measurements.md): a launch and a mark for each
# call, and a copy where the answer is returned. A kernel of several launches is found out by a rehearsal.
MAX_CALLS_IN_PLACE = 400
MAX_CALLS_RETURNED = 300
MIN_WINDOWS = 5
MAX_SLOWEST_MS = 100.0


@dataclass(frozen=True)
class Plan:
    """`calls` a window, `windows` in all."""

    calls: int
    windows: int


def plan(
    estimates_ms: list[float], *, num_trials: int, bytes_per_call: int, memory: int, returned: bool, is_cuda: bool
) -> Plan:
    """Enough calls that the fastest contender fills its window, few enough for the queue, the memory and the slowest.

    `estimates_ms` are the contenders' probe times: advisory. A contender that lies about them only changes how finely
    it is measured. At least `num_trials` calls are timed, in at least MIN_WINDOWS windows.
    """
    fastest, slowest = max(min(estimates_ms), 1e-4), max(*estimates_ms, 1e-4)
    calls = math.ceil(TARGET_MS["cuda" if is_cuda else "cpu"] / fastest)
    calls = min(
        calls,
        MAX_CALLS_RETURNED if returned else MAX_CALLS_IN_PLACE,
        max(int(MAX_SLOWEST_MS / slowest), 1),
        max(memory // max(bytes_per_call, 1), 1),
    )
    return Plan(calls=max(calls, 1), windows=max(math.ceil(num_trials / max(calls, 1)), MIN_WINDOWS))
