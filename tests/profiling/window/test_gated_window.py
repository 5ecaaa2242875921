"""The referee's side of a window behind the gate, with a device that is played: what is queued, who lets go of whom."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from domain.fault import LOST_EXIT, InfrastructureFault, JobCancelled, KernelFault
from domain.result import Status
from profiling.gpu.timing_device import Device
from profiling.window import device_clock, timed_window
from profiling.window.buffer_transfers import BufferTransfers
from profiling.window.call_buffers import Slots
from profiling.window.device_clock import FORCE_RELEASE_S, DeviceClock
from profiling.window.timed_window import NOT_REPORTED, PATIENCE_S, Clock, DeferredReadback, WindowSession


class Played:
    """A device, a gate, a session and a runner that note each step. `reports`: the runner's stream does so at release.

    Without `ends` the referee's stream waits until it is released by force. `fails` is the step that raises `fault`.
    """

    descriptor = 0
    arena = None

    def __init__(
        self, *, reports: bool = True, ends: bool = True, fails: str = "", fault: BaseException | None = None
    ) -> None:
        self.noted: list[str] = []
        self.last_done = 0
        self.reports = reports
        self.stuck = not ends
        self.patience: list[float] = []
        self.runner = self
        self._fails = fails
        self._fault = fault
        self._replies = iter(["armed", "done", "times"])

    def note(self, step: str) -> Callable[..., None]:
        def noted(*given: object) -> None:
            self.noted.append(" ".join([step, *map(str, given)]))
            if step == self._fails and self._fault is not None:
                raise self._fault

        return noted

    def clock(self, _: object) -> Any:
        def release(number: int) -> None:
            self.note("release")(number)
            self.last_done = number if self.reports else 0

        def start(number: int) -> None:
            self.note("start")()
            release(number)

        def force_release(number: int) -> None:
            self.note("force release")(number)
            self.stuck = False

        def ends(within_s: float) -> bool:
            self.patience.append(within_s)
            return not self.stuck

        def read() -> tuple[float, float]:
            self.note("read")()
            return 2.0, 0.5

        return SimpleNamespace(
            begin_setup=self.note("begin"),
            start=start,
            release=release,
            wait_until_done=self.note("wait"),
            stop=self.note("stop"),
            ends=ends,
            read=read,
            force_release=force_release,
        )

    def receive(self, _: float | None) -> dict[str, Any]:
        reply = next(self._replies)
        if reply == "done":
            self.note("hear done")()
        return {"op": reply, "call_ms": []}

    def kill(self) -> None:
        self.note("kill")()

    def reserve(self, size: int) -> Any:
        return SimpleNamespace(bytes=torch.empty(size, dtype=torch.uint8))

    def take_freed(self) -> list[tuple[float, int]]:
        return [(1.0, 3 << 30)]

    def nothing(self, *_: object) -> None:
        """Takes a message, or a step that has no effect here."""

    send = post = request = close = check_frozen = thaw = reserve_call = nothing

    def window(self, monkeypatch: pytest.MonkeyPatch, *, deferred_readback: bool = False) -> Clock:
        """One window, number 1; with deferred readback the outputs are number 2."""
        monkeypatch.setattr(timed_window, "DeviceClock", self.clock)
        monkeypatch.setattr(timed_window, "Gate", lambda: self)
        monkeypatch.setattr(timed_window, "SPIN_S", 0.0)
        for step in ("upload", "clear_inputs", "copy_outputs"):
            monkeypatch.setattr(BufferTransfers, step, lambda _, step=step: self.note(step)())
        session: Any = self
        slots = Slots(1, [torch.zeros(2)], (), [torch.zeros(2)], "cpu")
        deferred = DeferredReadback() if deferred_readback else None
        return (
            WindowSession(session, Device("cpu"), null=True).window(slots, gated=True, deferred_readback=deferred).clock
        )


def test_gated_window_queues_all_steps_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    assert played.window(monkeypatch) == Clock(2.0, 0.5)
    steps = ["begin", "upload", "start", "release 1", "wait 1", "copy_outputs", "stop"]
    assert played.noted == [*steps, "read", "hear done"]


def test_a_window_begins_when_freed_memory_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    monkeypatch.setattr(
        Device, "wait_until_cleared", lambda _, freed: played.note("cleared")(sum(size for _, size in freed))
    )
    played.window(monkeypatch)
    new_arena = Slots(1, [torch.zeros(2)], (), [torch.zeros(2)], "cpu").size
    assert played.noted[:2] == [f"cleared {(3 << 30) + new_arena}", "begin"]


def test_gated_window_deferred_outputs_are_released_after_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    assert played.window(monkeypatch, deferred_readback=True) == Clock(2.0, 0.5)
    calls, outputs = ["start", "release 1", "wait 1"], ["clear_inputs", "release 2", "wait 2"]
    assert played.noted[:-2] == ["begin", "upload", *calls, *outputs, "copy_outputs", "stop"]


def test_gated_window_stream_without_report_waits_for_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(reports=False)
    assert played.window(monkeypatch) == Clock(2.0, 0.5)
    assert played.noted[-3:] == ["stop", "hear done", "read"]


@pytest.mark.parametrize(
    "fault", [KernelFault(Status.TIMEOUT, "late"), JobCancelled(), InfrastructureFault("gone"), KeyboardInterrupt()]
)
def test_gated_window_any_fault_kills_the_runner_before_the_forced_release(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    played = Played(reports=False, ends=False, fails="hear done", fault=fault)
    with pytest.raises(type(fault)):
        played.window(monkeypatch, deferred_readback=True)
    assert played.noted[-3:] == ["hear done", "kill", "force release 2"]


@pytest.mark.parametrize(
    "step", ["begin", "upload", "start", "release", "wait", "clear_inputs", "copy_outputs", "stop", "hear done"]
)
def test_gated_window_any_failed_step_forces_the_release(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    played = Played(reports=False, fails=step, fault=RuntimeError("the driver refuses"))
    with pytest.raises(RuntimeError, match="the driver refuses"):
        played.window(monkeypatch, deferred_readback=True)
    assert played.noted[-2:] == ["kill", "force release 2"]


@pytest.mark.parametrize("reports", [True, False])
def test_gated_window_done_without_an_end_kills_the_runner(monkeypatch: pytest.MonkeyPatch, reports: bool) -> None:
    played = Played(reports=reports, ends=False)
    with pytest.raises(KernelFault, match=NOT_REPORTED) as raised:
        played.window(monkeypatch)
    assert raised.value.status is Status.CRASHED
    assert played.noted[-2:] == ["kill", "force release 1"]
    assert played.patience == [PATIENCE_S] and 1 < PATIENCE_S < 60


def test_gated_window_runner_that_cannot_be_killed_is_released_too(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(ends=False, fails="kill", fault=InfrastructureFault("the zygote is gone"))
    with pytest.raises(InfrastructureFault, match="the zygote is gone"):
        played.window(monkeypatch)
    assert played.noted[-1] == "force release 1"


class Stuck:
    """A stream that continues after so many forced releases, the gate that it waits for, and a clock without a host.

    `queries` are the results of the end event.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, releases: float, queries: Iterable[bool] = ()) -> None:
        self.released: list[tuple[int, int]] = []
        self.releases = releases
        self.seconds = 0.0
        self._queries = iter(queries)
        monkeypatch.setattr(torch.cuda, "Event", lambda **_: SimpleNamespace(query=self.query_end))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self)
        monkeypatch.setattr(device_clock, "_rescue_stream", lambda: 5)
        monkeypatch.setattr(device_clock, "time", SimpleNamespace(monotonic=lambda: self.seconds, sleep=self.passes))

    def passes(self, seconds: float) -> None:
        self.seconds += seconds

    def query(self) -> bool:
        return len(self.released) >= self.releases

    def query_end(self) -> bool:
        self.passes(3600.0)
        return next(self._queries)

    def reach(self) -> None: ...

    def force_release(self, stream: int, value: int) -> None:
        self.released.append((stream, value))


@pytest.mark.parametrize("releases", [0, 1, 3])
def test_force_release_repeats_from_another_stream_until_it_helps(
    monkeypatch: pytest.MonkeyPatch, releases: int
) -> None:
    stuck: Any = Stuck(monkeypatch, releases)
    DeviceClock(stuck).force_release(9)
    assert stuck.released == [(5, 9)] * releases


def test_force_release_that_never_helps_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: Any = Stuck(monkeypatch, math.inf)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        DeviceClock(stuck).force_release(9)
    assert ended.value.code == LOST_EXIT and FORCE_RELEASE_S <= stuck.seconds < 2 * FORCE_RELEASE_S


@pytest.mark.parametrize(("queries", "ended"), [([False, True], True), ([False, False], False)])
def test_ends_process_suspended_past_the_limit_queries_once_more(
    monkeypatch: pytest.MonkeyPatch, queries: list[bool], ended: bool
) -> None:
    stuck: Any = Stuck(monkeypatch, 0, queries)
    assert DeviceClock(stuck).ends(5.0) is ended


def test_gated_window_others_give_way_when_the_referee_lacks_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    played, lacks = Played(), [True]
    played.evict_others = played.note("evict others")  # type: ignore[attr-defined]
    empty = torch.empty

    def allocated(*size: Any, **options: Any) -> torch.Tensor:
        if size == (snapshot_bytes,) and lacks and lacks.pop():
            raise torch.OutOfMemoryError
        return empty(*size, **options)

    snapshot_bytes = Slots(1, [torch.zeros(2)], (), [torch.zeros(2)], "cpu").output_bytes
    monkeypatch.setattr(torch, "empty", allocated)
    assert played.window(monkeypatch) == Clock(2.0, 0.5)
    assert "evict others" in played.noted
