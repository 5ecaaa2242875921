"""The referee's side of a window behind the gate, with a device that is played: what is queued, who lets go of whom."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import profiling.window.timed_window
from domain.fault import LOST_EXIT, InfrastructureFault, JobCancelled, KernelFault
from domain.result import Status
from profiling.gpu.timing_device import Device
from profiling.window import device_clock
from profiling.window.buffer_transfers import BufferTransfers
from profiling.window.device_clock import FORCE_RELEASE_S, DeviceClock
from profiling.window.timed_window import NOT_REPORTED, PATIENCE_S, Clock, WindowSession


class Played:
    """A device, a gate and a runner that keep a record. `reports`: the runner's stream does, as the gun is fired.

    Without `ends` the referee's stream waits until it is let go. `fails` is the step that raises `fault`.
    """

    def __init__(
        self, *, reports: bool = True, ends: bool = True, fails: str = "", fault: BaseException | None = None
    ) -> None:
        self.record: list[str] = []
        self.last_done = 0
        self.reports = reports
        self.stuck = not ends
        self.patience: list[float] = []
        self._fails = fails
        self._fault = fault

    def note(self, what: str) -> Callable[..., None]:
        def noted(*given: object) -> None:
            self.record.append(" ".join([what, *map(str, given)]))
            if what == self._fails and self._fault is not None:
                raise self._fault

        return noted

    def fired(self, shot: int) -> None:
        self.note("fire")(shot)
        self.last_done = shot if self.reports else 0

    def clock(self, _: object) -> Any:
        def started(shot: int) -> None:
            self.note("start")()
            self.fired(shot)

        def let_go(shot: int) -> None:
            self.note("let go")(shot)
            self.stuck = False

        def ends(within_s: float) -> bool:
            self.patience.append(within_s)
            return not self.stuck

        return SimpleNamespace(
            begin_setup=self.note("begin"),
            start=started,
            release=self.fired,
            wait_until_done=self.note("wait"),
            stop=self.note("stop"),
            ends=ends,
            read=lambda: (2.0, 0.5),
            force_release=let_go,
        )

    def window(self, monkeypatch: pytest.MonkeyPatch, *, deferred_readback: bool = False) -> tuple[Clock, bool]:
        """One window, its shot the seventh; held back its answers are the eighth."""
        monkeypatch.setattr(profiling.window.timed_window, "DeviceClock", self.clock)
        monkeypatch.setattr(profiling.window.timed_window, "SPIN_S", 0.01)
        for step in ("upload", "clear_inputs", "copy_outputs"):
            monkeypatch.setattr(BufferTransfers, step, lambda _, step=step: self.note(step)())

        def receive(_: object) -> dict[str, str]:
            self.note("listen")()
            return {"op": "done"}

        runner = SimpleNamespace(receive=receive, kill=self.note("kill"))
        place = WindowSession(SimpleNamespace(runner=runner), Device("cpu"))  # type: ignore[arg-type]
        place._sequence_number = 8 if deferred_readback else 7
        nothing: Any = None
        taking = BufferTransfers(place.device, nothing, nothing, nothing, deferred_readback, None)
        gate: Any = self
        return place._run_on_device(gate, taking, 7)


def test_all_of_it_is_queued_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    assert played.window(monkeypatch) == (Clock(2.0, 0.5), True)
    assert played.record == ["begin", "upload", "start", "fire 7", "wait 7", "copy_outputs", "stop"]


def test_answers_that_are_held_back_are_asked_for_when_calls_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    assert played.window(monkeypatch, deferred_readback=True) == (Clock(2.0, 0.5), True)
    calls, answers = ["start", "fire 7", "wait 7"], ["clear_inputs", "fire 8", "wait 8"]
    assert played.record == ["begin", "upload", *calls, *answers, "copy_outputs", "stop"]


def test_who_is_not_heard_soon_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(reports=False)
    assert played.window(monkeypatch) == (Clock(2.0, 0.5), False)
    assert played.record[-2:] == ["stop", "listen"]


@pytest.mark.parametrize(
    "fault", [KernelFault(Status.TIMEOUT, "late"), JobCancelled(), InfrastructureFault("gone"), KeyboardInterrupt()]
)
def test_whatever_goes_wrong_the_runner_is_dead_before_the_stream_is_let_go(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    played = Played(reports=False, ends=False, fails="listen", fault=fault)
    with pytest.raises(type(fault)):
        played.window(monkeypatch, deferred_readback=True)
    assert played.record[-3:] == ["listen", "kill", "let go 8"]


@pytest.mark.parametrize(
    "step", ["begin", "upload", "start", "fire", "wait", "clear_inputs", "copy_outputs", "stop", "listen"]
)
def test_it_is_let_go_whichever_step_fails(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    played = Played(reports=False, fails=step, fault=RuntimeError("the driver refuses"))
    with pytest.raises(RuntimeError, match="the driver refuses"):
        played.window(monkeypatch, deferred_readback=True)
    assert played.record[-2:] == ["kill", "let go 8"]


@pytest.mark.parametrize("reports", [True, False])
def test_who_is_done_and_keeps_the_word_is_killed(monkeypatch: pytest.MonkeyPatch, reports: bool) -> None:
    played = Played(reports=reports, ends=False)
    with pytest.raises(KernelFault, match=NOT_REPORTED) as told:
        played.window(monkeypatch)
    assert told.value.status is Status.CRASHED
    assert played.record[-2:] == ["kill", "let go 7"]
    assert played.patience == [PATIENCE_S] and 1 < PATIENCE_S < 60


def test_the_stream_is_let_go_also_where_the_runner_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(ends=False, fails="kill", fault=InfrastructureFault("the zygote is gone"))
    with pytest.raises(InfrastructureFault, match="the zygote is gone"):
        played.window(monkeypatch)
    assert played.record[-1] == "let go 7"


class Stuck:
    """A stream that goes on when it has been let go so many times, and the gate that it waits for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: float) -> None:
        self.let_go_of: list[tuple[int, int]] = []
        self.times = times
        self.seconds = 0.0
        monkeypatch.setattr(device_clock, "_event", lambda: None)
        monkeypatch.setattr(device_clock, "_rescue_stream", lambda: 5)
        monkeypatch.setattr(device_clock, "_stream", lambda: self)
        monkeypatch.setattr(device_clock, "time", SimpleNamespace(monotonic=lambda: self.seconds, sleep=self.passes))

    def passes(self, seconds: float) -> None:
        self.seconds += seconds

    def query(self) -> bool:
        return len(self.let_go_of) >= self.times

    def reach(self) -> None: ...

    def force_release(self, stream: int, value: int) -> None:
        self.let_go_of.append((stream, value))


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_stream_is_let_go_by_another_one_until_it_has_passed(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    stuck: Any = Stuck(monkeypatch, times)
    DeviceClock(stuck).force_release(9)
    assert stuck.let_go_of == [(5, 9)] * times


def test_a_process_whose_stream_never_passes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: Any = Stuck(monkeypatch, math.inf)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        DeviceClock(stuck).force_release(9)
    assert ended.value.code == LOST_EXIT and FORCE_RELEASE_S <= stuck.seconds < 2 * FORCE_RELEASE_S


def test_who_was_stopped_since_it_asked_asks_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: Any = Stuck(monkeypatch, 0)
    clock = DeviceClock(stuck)
    asked: list[bool] = []

    def query() -> bool:
        stuck.seconds += 3600
        asked.append(True)
        return len(asked) > 1

    clock._end = SimpleNamespace(query=query)  # type: ignore[assignment]
    assert clock.ends(5.0)
    clock._end = SimpleNamespace(query=lambda: stuck.passes(1) or False)  # type: ignore[assignment]
    assert not clock.ends(5.0)
