"""The referee's side of a window behind the gate, where a device would: what is queued, and who lets go of whom."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import profiling.window
from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from domain.result import Status
from profiling.device import Device
from profiling.taking import Taking
from profiling.window import NOT_REPORTED, Clock, Range


class Played:
    """A device, a gate and a runner that keep a record. `reports`: the runner's stream does, as the gun is fired."""

    def __init__(self, *, reports: bool = True, done: Callable[[], None] = lambda: None, ends: bool = True) -> None:
        self.record: list[str] = []
        self.reported = 0
        self.reports = reports
        self.done = done
        self.stuck = not ends

    def note(self, what: str) -> Callable[..., None]:
        return lambda *given: self.record.append(" ".join([what, *map(str, given)]))

    def fired(self, shot: int) -> None:
        self.record.append(f"fire {shot}")
        self.reported = shot if self.reports else 0

    def clock(self, _: object) -> Any:
        def started(shot: int) -> None:
            self.record.append("start")
            self.fired(shot)

        def let_go(shot: int) -> None:
            self.record.append(f"let go {shot}")
            self.stuck = False

        return SimpleNamespace(
            begin=self.note("begin"),
            start=started,
            fire=self.fired,
            wait=self.note("wait"),
            stop=self.note("stop"),
            ends=lambda within_s: not self.stuck,
            read=lambda: (2.0, 0.5),
            let_go=let_go,
        )

    def window(self, monkeypatch: pytest.MonkeyPatch, *, held_back: bool = False) -> tuple[Clock, bool]:
        """One window, its shot the seventh; held back its answers are the eighth."""
        monkeypatch.setattr(profiling.window, "DeviceClock", self.clock)
        monkeypatch.setattr(profiling.window, "SPIN_S", 0.01)
        for step in ("make_ready", "take_away", "keep"):
            monkeypatch.setattr(Taking, step, lambda _, step=step: self.record.append(step))

        def answer(_: object) -> dict[str, str]:
            self.record.append("listen")
            self.done()
            return {"op": "done"}

        runner = SimpleNamespace(answer=answer, kill=self.note("kill"))
        place = Range(SimpleNamespace(runner=runner), Device("cpu"))  # type: ignore[arg-type]
        place._shots = 8 if held_back else 7
        nothing: Any = None
        taking = Taking(place.device, nothing, nothing, nothing, held_back, None)
        gate: Any = self
        return place._by_device(gate, taking, 7)


def test_all_of_it_is_queued_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    assert played.window(monkeypatch) == (Clock(2.0, 0.5), True)
    assert played.record == ["begin", "make_ready", "start", "fire 7", "wait 7", "keep", "stop"]


def test_answers_that_are_held_back_are_asked_for_when_calls_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    assert played.window(monkeypatch, held_back=True) == (Clock(2.0, 0.5), True)
    calls, answers = ["start", "fire 7", "wait 7"], ["take_away", "fire 8", "wait 8"]
    assert played.record == ["begin", "make_ready", *calls, *answers, "keep", "stop"]


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
    def raising() -> None:
        raise fault

    played = Played(reports=False, done=raising, ends=False)
    with pytest.raises(type(fault)):
        played.window(monkeypatch, held_back=True)
    assert played.record[-3:] == ["listen", "kill", "let go 8"] and not played.stuck


@pytest.mark.parametrize("reports", [True, False])
def test_who_is_done_and_keeps_the_word_is_killed(monkeypatch: pytest.MonkeyPatch, reports: bool) -> None:
    played = Played(reports=reports, ends=False)
    with pytest.raises(KernelFault, match=NOT_REPORTED) as told:
        played.window(monkeypatch)
    assert told.value.status is Status.CRASHED
    assert played.record[-2:] == ["kill", "let go 7"] and not played.stuck


def test_the_stream_is_let_go_also_where_the_runner_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(ends=False)

    def broken(*_: object) -> None:
        raise InfrastructureFault("the zygote is gone")

    monkeypatch.setattr(played, "note", lambda what, note=played.note: broken if what == "kill" else note(what))
    with pytest.raises(InfrastructureFault, match="the zygote is gone"):
        played.window(monkeypatch)
    assert played.record[-1] == "let go 7"
