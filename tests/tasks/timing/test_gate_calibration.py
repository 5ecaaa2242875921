"""How many calls a window gets, from what rehearsals took: with windows made up, as only a GPU has a gate."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from profiling.gpu.timing_device import Device
from profiling.stats.stopping_rule import MAX_CALLS, QUEUE, TARGET_MS
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import GateClosed
from tasks.runtime.kernel_run import KernelRun
from tasks.timing.gate_calibration import AGAIN_S, OVERHEAD_MS, SHRINK, Calibration, calibrate

CUDA = cast(Device, SimpleNamespace(is_cuda=True, name="cuda"))
LIMIT = MAX_CALLS["cuda"]


class Windows:
    """Windows that take `own_ms` and `call_ms` a call, and hold up to `room` calls."""

    def __init__(self, call_ms: float, own_ms: float = OVERHEAD_MS, room: int = LIMIT, busy: int = 0) -> None:
        """The host is busy during the first `busy` windows: they take longer to be queued than they usually may."""
        self.call_ms = call_ms
        self.own_ms = own_ms
        self.room = room
        self.busy = busy
        self.tried: list[int] = []

    def window(self, slots: Any, **how: Any) -> Any:
        assert how["with_events"] and not how["read"]  # Room is needed for the marks, and nobody wants to know more.
        self.tried.append(slots.calls)
        is_busy = len(self.tried) <= self.busy and how["arm_within"] < AGAIN_S
        if is_busy or slots.calls > self.room:
            raise GateClosed
        return SimpleNamespace(elapsed_ms=self.own_ms + slots.calls * self.call_ms)

    def rehearsed(
        self, estimate_ms: float, entries: float | None = 1.0, limit: int = LIMIT, launches: int | None = 1
    ) -> Calibration | None:
        """With an estimate of the call's time and its entries in the queue, as a probe gives them."""
        held: Any = SimpleNamespace(
            probe=SimpleNamespace(entries=entries),
            window_session=self,
            estimate_ms=estimate_ms,
            attribute_faults=nullcontext,
        )
        return calibrate(cast(KernelRun, held), lambda _, calls: cast(Slots, SimpleNamespace(calls=calls)), limit, CUDA)


@pytest.mark.parametrize("call_ms", [0.012, 0.04, 0.2, 3.0])
def test_what_a_window_takes_by_itself_is_no_calls_time(call_ms: float) -> None:
    windows = Windows(call_ms)
    rehearsal = windows.rehearsed(estimate_ms=0.03)
    assert rehearsal is not None and rehearsal.call_ms == pytest.approx(call_ms)
    assert rehearsal.calls * call_ms >= TARGET_MS["cuda"] / 1.5 or rehearsal.calls == LIMIT


def test_no_more_than_half_a_window_is_its_own() -> None:
    rehearsal = Windows(0.0, own_ms=0.2).rehearsed(estimate_ms=3.0, limit=1)
    assert rehearsal is not None and rehearsal.calls * rehearsal.call_ms >= 0.1


def test_a_few_more_calls_are_worth_no_other_rehearsal() -> None:
    few, many = Windows(0.1), Windows(0.1)
    few.rehearsed(estimate_ms=0.12)
    many.rehearsed(estimate_ms=0.3)
    assert len(few.tried) == 1 and len(many.tried) == 2 and many.tried[1] > many.tried[0]


def test_what_cannot_be_queued_is_tried_with_fewer() -> None:
    windows = Windows(0.05, room=30)
    rehearsal = windows.rehearsed(estimate_ms=0.05)
    assert rehearsal is not None and 30 // SHRINK < rehearsal.calls <= 30
    assert Windows(0.01, room=0).rehearsed(estimate_ms=0.01) is None


def test_a_host_that_was_busy_is_no_kernel_that_waits() -> None:
    usual, windows = Windows(0.05), Windows(0.05, busy=3)
    assert windows.rehearsed(estimate_ms=0.05) == usual.rehearsed(estimate_ms=0.05)
    (calls,) = usual.tried
    assert windows.tried == [calls, 1, 1, calls]


def test_a_host_that_launches_slowly_needs_no_second_rehearsal() -> None:
    windows = Windows(0.004)
    windows.rehearsed(estimate_ms=0.008)
    assert len(windows.tried) == 1


@pytest.mark.parametrize(("entries", "call_ms"), [(3.5, 0.006), (60.0, 0.1), (QUEUE + 1.0, 1.5)])
def test_no_more_calls_are_tried_than_are_said_to_fit(entries: float, call_ms: float) -> None:
    windows = Windows(call_ms)
    rehearsal = windows.rehearsed(call_ms, entries)
    most = max(QUEUE / (entries + 1), 1)
    assert rehearsal is not None and most - 1 < rehearsal.calls <= most and max(windows.tried) <= most


def test_of_calls_that_nobody_has_counted_as_many_are_tried_as_fill_a_window() -> None:
    rehearsal = Windows(0.001).rehearsed(0.001, None)
    assert rehearsal is not None and rehearsal.calls == LIMIT


def test_more_launches_than_fit_into_its_time_are_not_believed() -> None:
    rehearsal = Windows(0.012).rehearsed(0.15, entries=1e6)
    assert rehearsal is not None and rehearsal.calls * 0.012 > 0.3


def test_few_calls_are_queued_where_there_is_memory_for_no_more() -> None:
    rehearsal = Windows(0.012).rehearsed(0.012, limit=5)
    assert rehearsal is not None and rehearsal.calls == 5


def test_where_more_cannot_be_queued_as_many_as_can_are_looked_for() -> None:
    rehearsal = Windows(0.006, room=338).rehearsed(0.1)
    assert rehearsal is not None and rehearsal.calls >= 338 // SHRINK


def test_a_call_that_is_taken_for_long_is_rehearsed_until_it_fills_its_window() -> None:
    rehearsal = Windows(0.012, own_ms=0.35).rehearsed(100.0)
    assert rehearsal is not None and rehearsal.calls * 0.012 >= 1.0
