"""How many calls a window holds and how many windows there are."""

from __future__ import annotations

import math

# A window should be long against what null windows vary by (tens of µs on an H200 and on a host's clock).
TARGET_MS = {"cuda": 8.0, "cpu": 10.0}

# The device's launch queue holds about 1000 entries (measured: docs/measurements.md): a launch and a mark for each
# call. A kernel of several launches is found out by a rehearsal. On the host more calls do not make a better figure.
MAX_CALLS = {"cuda": 400, "cpu": 100}
CALLS_A_TRIAL, FEW_CALLS = 4, 50
MIN_WINDOWS = 5
MAX_SLOWEST_MS = 100.0
REHEARSED = 4.0


def calls_that_fit(slowest_ms: float, *, num_trials: int, bytes_per_call: int, memory: int, is_cuda: bool) -> int:
    """At most so many calls a window: for the launch queue, the memory, and the patience with the slowest contender.

    Who asks for few trials wants a quick answer rather than a fine one. Times are the contenders' own (advisory): one
    that lies about them only changes how finely it is measured.
    """
    most = min(MAX_CALLS["cuda" if is_cuda else "cpu"], max(CALLS_A_TRIAL * num_trials, FEW_CALLS))
    return max(min(most, int(MAX_SLOWEST_MS / max(slowest_ms, 1e-4)), memory // max(bytes_per_call, 1)), 1)


def calls_that_fill(fastest_ms: float, limit: int, *, is_cuda: bool) -> int:
    """Enough calls that the fastest contender fills its window, within that limit."""
    return max(min(math.ceil(TARGET_MS["cuda" if is_cuda else "cpu"] / max(fastest_ms, 1e-4)), limit), 1)


def calls_to_rehearse(estimate_ms: float, limit: int) -> int:
    """A probe's estimate is mostly the host's time to launch, so a rehearsal tries more calls than it asks for."""
    return calls_that_fill(estimate_ms / REHEARSED, limit, is_cuda=True)


def windows_for(num_trials: int, calls: int) -> int:
    """At least `num_trials` calls are timed, in at least MIN_WINDOWS windows."""
    return max(math.ceil(num_trials / calls), MIN_WINDOWS)
