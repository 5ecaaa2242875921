"""When a kernel's windows leave the gate, and when its memory moves: with runners made up, as only a GPU has a gate."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
import torch

from profiling.results.samples import WindowSetup
from profiling.window.call_buffers import Slots
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


class Freeing:
    """A kernel whose runner has freed device memory, and a worker that notes for how much its device waits."""

    def __init__(self, freed: list[tuple[float, int]]) -> None:
        self.freed = freed
        self.waited: list[Any] = []
        self.role = "candidate"
        self.session = self.worker = self.device = self.rounds = self
        self.kernel_runs = (self,)

    def take_freed(self) -> list[tuple[float, int]]:
        freed, self.freed = self.freed, []
        return freed

    def wait_until_cleared(self, freed: list[tuple[float, int]]) -> None:
        self.waited.append(freed)

    def null_window(self, *_: Any, **__: Any) -> None:
        self.waited.append("window")


def test_a_null_window_waits_once_for_what_runners_have_freed() -> None:
    freeing = Freeing([(1.0, 3 << 30)])
    runner = WindowRunner(cast(Any, freeing))
    for _ in range(2):
        runner.null_window(cast(Any, None), WindowSetup(1, is_cuda=True, gated=True))
    assert freeing.waited == [[(1.0, 3 << 30)], "window", [], "window"]


class Moving:
    """A kernel whose runner notes what it is asked to do with its memory."""

    def __init__(self, role: str, noted: list[str]) -> None:
        self.role = role
        self.noted = noted
        self.session = self.window_session = self

    def attribute_faults(self) -> AbstractContextManager[None]:
        return nullcontext()

    def free_cache(self) -> None:
        self.noted.append(f"{self.role} frees")

    def shift_allocations(self, *_: Any) -> None:
        self.noted.append(f"{self.role} allocates")


@pytest.mark.parametrize(("launches", "moved"), [(4, "ab"), (None, "ab"), (1, "a")])
def test_all_memory_is_free_before_one_kernel_allocates(launches: int | None, moved: str) -> None:
    noted: list[str] = []
    runs = {role: Moving(role, noted) for role in "ab"}
    setups = {"a": WindowSetup(1, True, True, launches=2), "b": WindowSetup(1, True, True, launches=launches)}
    slots = {role: Slots(1, [torch.ones(1)], (), [torch.ones(1)], "cpu") for role in "ab"}
    for layout in slots.values():
        layout.broadcast([torch.ones(1)])
    runner = WindowRunner(cast(Any, Rounds(0)))
    runner.shuffle_allocations(slots, setups, cast(Any, [runs["b"], runs["a"]]))
    order = [role for role in "ba" if role in moved]
    assert noted == [f"{role} {does}" for does in ("frees", "allocates") for role in order]
