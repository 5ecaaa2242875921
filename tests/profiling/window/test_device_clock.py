"""The device's clock of a window: one stream stands for the runner's, the current one is the referee's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from profiling.window.device_clock import DeviceClock
from sandbox.protocol.cuda_driver import Gate, independent_stream

pytestmark = pytest.mark.gpu
CYCLES = 10_000_000


@pytest.fixture
def gate() -> Iterator[Gate]:
    torch.empty((), device="cuda")
    gate = Gate()
    yield gate
    gate.force_release(independent_stream(), 2**30)
    gate.release(2**30)
    torch.cuda.synchronize()
    gate.withdraw()
    gate.close()


def test_the_clock_runs_from_the_gun_to_what_was_queued_last(gate: Gate) -> None:
    runner = torch.cuda.Stream()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    gate.wait_on_gate(runner.cuda_stream, 1)
    with torch.cuda.stream(runner):
        began.record(runner)
        torch.cuda._sleep(CYCLES)
        ended.record(runner)
    gate.signal_done(runner.cuda_stream, 1)
    clock = DeviceClock(gate)
    before = time.perf_counter()
    clock.begin_setup()
    clock.start(1)
    clock.wait_until_done(1)
    clock.stop()
    assert clock.ends(5.0)
    elapsed_ms, setup_ms = clock.read()
    host_ms = 1e3 * (time.perf_counter() - before)
    assert gate.last_done == 1
    assert 1 < began.elapsed_time(ended) <= elapsed_ms <= elapsed_ms + setup_ms <= host_ms


def test_nothing_runs_before_the_gun(gate: Gate) -> None:
    runner = torch.cuda.Stream()
    gate.wait_on_gate(runner.cuda_stream, 7)
    gate.signal_done(runner.cuda_stream, 7)
    clock = DeviceClock(gate)
    clock.release(6)
    torch.cuda.current_stream().synchronize()
    assert not runner.query() and gate.last_done == 0
    clock.release(7)
    runner.synchronize()
    assert gate.last_done == 7


def test_who_never_reports_holds_up_nobody_for_good(gate: Gate) -> None:
    clock = DeviceClock(gate)
    clock.begin_setup()
    clock.start(3)
    clock.wait_until_done(3)
    clock.stop()
    assert not clock.ends(0.2)
    clock.force_release(3)
    assert clock.ends(0.0)
    elapsed_ms, _ = clock.read()
    assert elapsed_ms > 190  # The clocks of host and device need not agree.


def test_who_put_another_page_in_its_place_holds_up_nobody_either(gate: Gate) -> None:
    remove = 9  # MADV_REMOVE
    clock = DeviceClock(gate)
    clock.begin_setup()
    clock.start(3)
    clock.wait_until_done(3)
    clock.stop()
    gate._words[1] = 2
    gate._page.madvise(remove)
    assert gate.last_done == 0
    gate._words[1] = 3  # What a host writes there now no wait of the device sees.
    assert not clock.ends(0.05)
    clock.force_release(3)
    assert clock.ends(0.0)


def test_a_gate_that_is_withdrawn_makes_room_for_the_next_one() -> None:
    for _ in range(8):  # Each of which is likely to lie where the one before it lay.
        one = Gate()
        one.reach()
        one.withdraw()
        one.close()
        del one
