"""How many calls a window holds, and when there are windows enough."""

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
"""Outputs of a window: each costs the null runner, which the job waits for, some microseconds of its own."""
QUEUE = 960
"""Entries of the device's launch queue that calls may take: it holds 1015 launches between two words, and 1020 wait for
the device (docs/measurements.md)."""
MIN_ROUNDS = 6
EACH_ROUNDS, EACH_LOOSER = 5, 3.0
"""In each of several processes: of five windows one that was disturbed can be left out. What they are less sure by than
all put together should be is little beside what processes differ by, and in the interval anyhow."""
MAX_SLOWEST_MS = 100.0

# What narrowing an interval may hold the device for. The host's clock does not get much better with more of it.
BUDGET_S = {"cuda": 1.2, "cpu": 0.4}


class Stop(StrEnum):
    """Why no more windows were taken."""

    TARGET_PRECISION = "target_precision"
    NUM_TRIALS = "num_trials"
    DEVICE_TIME = "device_time"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Plan:
    """Rounds of one window for each contender, until the interval is as narrow as asked for or a budget is spent.

    `target_precision` is half the 95 % interval's width, relative to its middle; `num_trials` bounds the rounds.
    `min_rounds` are always taken, and MIN_ROUNDS where they are not precise enough. `device_time` is the part of
    BUDGET_S that there is (1.0: all). Windows last `window` times as long as usual.
    """

    num_trials: int
    target_precision: float
    is_cuda: bool
    min_rounds: int = MIN_ROUNDS
    device_time: float = 1.0
    window: float = 1.0

    @classmethod
    def of(cls, request: Request, *, is_cuda: bool) -> Plan:
        """In each of the processes that the request is due: a share of its rounds and its time.

        The time being the mean of all, one of them may be less sure.
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
        """Whether so many rounds are enough, and why."""
        if rounds < self.min_rounds:
            return None
        if half_width <= self.target_precision:
            return Stop.TARGET_PRECISION
        if rounds < MIN_ROUNDS:  # Fewer are enough only where they agree.
            return None
        if rounds >= self.num_trials:
            return Stop.NUM_TRIALS
        budget_s = self.device_time * BUDGET_S["cuda" if self.is_cuda else "cpu"]
        return Stop.DEVICE_TIME if spent_s >= budget_s else None


def calls_that_fit(
    slowest_ms: float, *, bytes_per_call: int, memory: int, is_cuda: bool, tensors_per_call: int = 1
) -> int:
    """At most so many calls a window: for the memory, the patience with the slowest contender, and MAX_TENSORS.

    `slowest_ms` is in part the contenders' own word: one that calls itself fast only changes how finely it is measured.
    """
    most = MAX_CALLS["cuda" if is_cuda else "cpu"]
    most = min(most, MAX_TENSORS // max(tensors_per_call, 1), memory // max(bytes_per_call, 1))
    return max(min(most, int(MAX_SLOWEST_MS / max(slowest_ms, 1e-4))), 1)


def calls_that_queue(entries: float) -> int:
    """At most so many calls wait behind the gate, each of so many entries of the queue, and a mark behind each.

    By the runner's own word: where more are said to fit than do, a rehearsal finds it out.
    """
    return max(int(QUEUE / (max(entries, 1.0) + 1)), 1)


def calls_that_fill(fastest_ms: float, limit: int, *, is_cuda: bool, window: float = 1.0) -> int:
    """Enough calls that the fastest contender fills its window, `window` times as long as usual, within that limit."""
    target_ms = window * TARGET_MS["cuda" if is_cuda else "cpu"]
    return max(min(coarse(math.ceil(target_ms / max(fastest_ms, 1e-4))), limit), 1)


def coarse(calls: int) -> int:
    """The next number of calls from there on of which there are eight an octave: up to 16 each, then every other one.

    What a rehearsal tells differs by a few percent from job to job: so the same kernel's windows are nearly always of
    the same kind, and its null windows known (docs/adr/0039). None is more than an eighth longer by that.
    """
    step = 1 << max((calls - 1).bit_length() - 4, 0)
    return -(-calls // step) * step
