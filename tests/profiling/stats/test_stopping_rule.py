"""How many calls and windows: bounded whatever a kernel run says of itself."""

from __future__ import annotations

import math

import pytest

from domain.budget import Budget
from domain.kernel import Kernel, KernelType
from domain.request import Request
from profiling.stats.stopping_rule import (
    BUDGET_S,
    MAX_CALLS,
    MIN_ROUNDS,
    QUEUE,
    TARGET_MS,
    Plan,
    Stop,
    calls_that_fill,
    calls_that_fit,
    calls_that_queue,
    coarse,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("slowest_ms", "bytes_per_call", "memory", "calls"),
    [
        (0.004, 1024, GIB, MAX_CALLS["cuda"]),
        (20.0, 1024, GIB, 5),
        (0.004, 1 << 20, 10 << 20, 10),
        (0.004, GIB, 1 << 20, 1),
        (1e12, 0, GIB, 1),
        (0.0, 0, GIB, MAX_CALLS["cuda"]),
    ],
)
def test_the_queue_the_memory_and_the_slowest_bound_a_window(
    slowest_ms: float, bytes_per_call: int, memory: int, calls: int
) -> None:
    assert calls_that_fit(slowest_ms, bytes_per_call=bytes_per_call, memory=memory, is_cuda=True) == calls


def test_as_many_calls_are_queued_as_there_is_room_for_with_their_marks() -> None:
    assert [calls_that_queue(entries) for entries in (0.0, 1.0, 3.0, QUEUE, 10.0 * QUEUE)] == [480, 480, 240, 1, 1]


def test_the_fastest_fills_its_window_within_the_limit() -> None:
    assert calls_that_fill(TARGET_MS["cuda"] / 20, 400, is_cuda=True) == 20
    assert calls_that_fill(TARGET_MS["cuda"] / 2000, 400, is_cuda=True) == 400
    assert calls_that_fill(0.0, 400, is_cuda=False) == 400
    assert calls_that_fill(1e12, 400, is_cuda=False) == 1
    assert calls_that_fill(TARGET_MS["cuda"] / 60, 400, is_cuda=True, window=1 / 3) == 20


def test_a_window_holds_one_of_eight_numbers_of_calls_an_octave() -> None:
    assert [coarse(calls) for calls in (1, 2, 15, 16, 17, 18, 19, 32, 33, 36, 37, 64, 65, 250, 257, 400)] == [
        1, 2, 15, 16, 18, 18, 20, 32, 36, 36, 40, 64, 72, 256, 288, 416,
    ]  # fmt: skip
    assert len({coarse(calls) for calls in range(129, 257)}) == 8
    assert all(calls <= coarse(calls) <= 1.125 * calls for calls in range(1, 2000))
    assert calls_that_fill(TARGET_MS["cuda"] / 33, 400, is_cuda=True) == 36
    assert calls_that_fill(TARGET_MS["cuda"] / 33, 34, is_cuda=True) == 34, "what fits is no matter of kinds"


def test_rounds_go_on_until_something_says_enough() -> None:
    plan = Plan(num_trials=100, target_precision=0.01, is_cuda=True)
    assert plan.stop(MIN_ROUNDS - 1, 1e9, 0.0) is None
    assert plan.stop(MIN_ROUNDS, 0.1, 0.02) is None
    assert plan.stop(MIN_ROUNDS, 0.1, 0.01) is Stop.TARGET_PRECISION
    assert plan.stop(100, 0.1, 0.02) is Stop.NUM_TRIALS
    assert plan.stop(MIN_ROUNDS, BUDGET_S["cuda"], math.inf) is Stop.DEVICE_TIME


def test_no_precision_asked_for_takes_every_round() -> None:
    assert Plan(num_trials=50, target_precision=0.0, is_cuda=True).stop(49, 0.1, 1e-9) is None


def test_a_budget_bounds_rounds_and_device_time() -> None:
    precise = Plan(1000, 0.002, True, min_rounds=20, device_time=10.0)
    assert precise.stop(19, 0.1, 0.0) is None
    assert precise.stop(20, 0.1, 0.0) is Stop.TARGET_PRECISION
    assert precise.stop(20, 10 * BUDGET_S["cuda"] - 0.1, 1.0) is None
    assert precise.stop(20, 10 * BUDGET_S["cuda"], 1.0) is Stop.DEVICE_TIME
    quick = Plan(20, 0.05, True, min_rounds=4, device_time=0.25)
    assert quick.stop(3, 0.1, 0.0) is None and quick.stop(4, 0.1, 0.05) is Stop.TARGET_PRECISION
    assert quick.stop(MIN_ROUNDS - 1, 1e9, 0.06) is None and quick.stop(MIN_ROUNDS, 1e9, 0.06) is Stop.DEVICE_TIME
    assert Plan(20, 0.05, True, device_time=0.25).stop(6, 0.25 * BUDGET_S["cuda"], 1.0) is Stop.DEVICE_TIME


def test_several_processes_share_rounds_and_time_and_are_less_sure() -> None:
    kernel = Kernel("", KernelType.TORCH)
    alone = Plan.of(Request(kernel, budget=Budget.PRECISE, num_trials=1000, target_precision=0.002), is_cuda=True)
    assert (alone.num_trials, alone.min_rounds, alone.device_time, alone.window) == (84, 5, pytest.approx(10 / 12), 3.0)
    assert alone.target_precision == pytest.approx(3 * 0.002 * 12**0.5)
    quick = Plan.of(Request(kernel, budget=Budget.QUICK, num_trials=20, target_precision=0.05), is_cuda=True)
    assert quick == Plan(20, 0.05, True, min_rounds=4, device_time=0.25, window=0.5)
