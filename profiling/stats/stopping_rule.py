"""Decides how many calls a window holds, and when enough windows were measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from domain.request import Request

# A window should be long against what null windows vary by: 5 µs and 1.5 % of what is copied on an H200
# (docs/measurements.md), tens of µs on a host's clock. Many short windows average that better than few long ones.
TARGET_MS = {"cuda": 3.0, "cpu": 10.0}

# More calls do not make a better figure: what is left then differs from call to call, on a device by its launches.
MAX_CALLS = {"cuda": 400, "cpu": 100}
MAX_TENSORS = 1 << 15
"""Maximum number of output tensors of a window: each costs the null runner, and so the job, some microseconds."""
QUEUE = 960
"""Maximum number of entries of the device's launch queue that a window's calls may take. The queue holds 1015 launches
between two stream memory operations; at 1020 the host waits for the device (docs/measurements.md)."""
MIN_ROUNDS = 6
EACH_ROUNDS, EACH_LOOSER = 5, 3.0
"""Minimum number of rounds, and factor of the target precision, in each of several processes. With five windows one
disturbed window can be left out. The lower precision is small against the spread between processes, and is part of the
interval."""
MAX_SLOWEST_MS = 100.0
"""Maximum duration of the slowest kernel's window, in ms."""

# Maximum device time for narrowing the interval, in s. On a host more time hardly improves the result.
BUDGET_S = {"cuda": 1.2, "cpu": 0.4}


class Stop(StrEnum):
    """The reason why timing ended."""

    TARGET_PRECISION = "target_precision"
    NUM_TRIALS = "num_trials"
    DEVICE_TIME = "device_time"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Plan:
    """Rounds of one window for each kernel run, until the interval is as narrow as asked for or a budget is spent.

    `target_precision` is half the 95 % interval's width, relative to its middle; `num_trials` bounds the rounds.
    `min_rounds` are always taken, and `usual_rounds` where they are not precise enough. `device_time` is the part of
    BUDGET_S that there is (1.0: all). Windows last `window` times as long as usual.
    """

    num_trials: int
    target_precision: float
    is_cuda: bool
    min_rounds: int = MIN_ROUNDS
    device_time: float = 1.0
    window: float = 1.0
    usual_rounds: int = MIN_ROUNDS

    @classmethod
    def of(cls, request: Request, *, is_cuda: bool) -> Plan:
        """The plan for each of the request's processes: a share of its rounds and of its device time.

        The result is the mean over all processes, so that each may be less precise.
        """
        effort, shares = request.budget.effort, request.processes
        fewest, looser = (EACH_ROUNDS, EACH_LOOSER) if shares > 1 else (MIN_ROUNDS, 1.0)
        return cls(
            math.ceil(request.num_trials / shares),
            request.target_precision * math.sqrt(shares) * looser,
            is_cuda,
            max(math.ceil(effort.min_rounds / shares), min(effort.min_rounds, fewest)),
            effort.device_time / shares,
            effort.lone_window if is_cuda and request.reference is None else effort.window,
        )

    def stop(self, rounds: int, spent_s: float, half_width: float) -> Stop | None:
        """The reason to stop after `rounds` rounds; None to continue."""
        if rounds < self.min_rounds:
            return None
        if half_width <= self.target_precision:
            return Stop.TARGET_PRECISION
        if rounds < self.usual_rounds:  # Fewer rounds are enough only if they are precise.
            return None
        if rounds >= self.num_trials:
            return Stop.NUM_TRIALS
        budget_s = self.device_time * BUDGET_S["cuda" if self.is_cuda else "cpu"]
        return Stop.DEVICE_TIME if spent_s >= budget_s else None


def calls_that_fit(
    slowest_ms: float, *, bytes_per_call: int, memory: int, is_cuda: bool, tensors_per_call: int = 1
) -> int:
    """Maximum number of calls of a window, limited by memory, MAX_SLOWEST_MS and MAX_TENSORS.

    `slowest_ms` is partly the kernels' own claim: a kernel that claims to be fast only changes its own precision.
    """
    most = MAX_CALLS["cuda" if is_cuda else "cpu"]
    most = min(most, MAX_TENSORS // max(tensors_per_call, 1), memory // max(bytes_per_call, 1))
    return max(min(most, int(MAX_SLOWEST_MS / max(slowest_ms, 1e-4))), 1)


def calls_that_queue(entries: float) -> int:
    """Maximum number of calls that can be queued behind the gate, each with `entries` queue entries and one event.

    `entries` is the runner's own claim; if it is too low, the calibration finds out.
    """
    return max(int(QUEUE / (max(entries, 1.0) + 1)), 1)


def calls_that_fill(fastest_ms: float, limit: int, *, is_cuda: bool, window: float = 1.0) -> int:
    """Number of calls with which the fastest kernel fills a window of `window` times the usual length, up to
    `limit`."""
    target_ms = window * TARGET_MS["cuda" if is_cuda else "cpu"]
    return max(min(coarse(math.ceil(target_ms / max(fastest_ms, 1e-4))), limit), 1)


def coarse(calls: int) -> int:
    """`calls` rounded up to one of eight numbers an octave: every number up to 16, then every second one, and so on.

    Calibrations of the same kernel differ by a few percent. Rounding gives its windows nearly always the same size, so
    that its null windows are cached (docs/adr/0019). A window gets longer by an eighth at most.
    """
    step = 1 << max((calls - 1).bit_length() - 4, 0)
    return -(-calls // step) * step
