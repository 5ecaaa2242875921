"""When a kernel's windows leave the gate: with windows made up, as only a GPU has a gate."""

from __future__ import annotations

from typing import Any, cast

import pytest

from profiling.results.samples import WindowSetup
from profiling.window.timed_window import GateClosed
from tasks.timing.window_runner import WindowRunner


class Rounds:
    """Rounds whose gated windows wait for the device, as often as `blocked` says."""

    kernel_runs = ()
    worker = None

    def __init__(self, blocked: int) -> None:
        self.blocked = blocked

    def run_window(self, *_: Any, gated: bool, **__: Any) -> str:
        if gated and self.blocked:
            self.blocked -= 1
            raise GateClosed
        return "window"


class Run:
    role = "candidate"


def windows_of(runner: WindowRunner, count: int) -> list[Any]:
    """The windows of `count` tries, None for one behind whose gate the kernel waited."""
    made: list[Any] = []
    for _ in range(count):
        setup = WindowSetup(4, is_cuda=True, gated=Run.role not in runner.streamed)
        try:
            made.append(runner.run(cast(Any, Run()), {}, setup))
        except GateClosed:
            made.append(None)
    return made


@pytest.mark.parametrize(("blocked", "gated"), [(0, True), (1, True), (2, False), (5, False)])
def test_a_kernel_is_streamed_once_it_waited_for_the_device_in_two_windows(blocked: int, *, gated: bool) -> None:
    runner = WindowRunner(cast(Any, Rounds(blocked)))
    assert windows_of(runner, 4)[min(blocked, 2) :] == ["window"] * (4 - min(blocked, 2))
    assert (runner.streamed == set()) == gated
