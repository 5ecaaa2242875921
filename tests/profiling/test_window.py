"""A place for windows leaves nothing behind in the referee, whose process lives for thousands of jobs."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pytest import MonkeyPatch

from backends.backend import Artifact, Target
from domain.kernel import Kernel, KernelType
from profiling.device import Device
from profiling.slots import Slots
from profiling.told_layouts import PLACES
from profiling.window import Range
from sandbox.channel import Message
from sandbox.launcher import Zygote
from sandbox.session import Session

WAYS = ((True, True), (True, False), (False, True))
"""Marked, and read."""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    zygote = Zygote(tmp_path, arch=None, memory_limit=1 << 30)
    folder = zygote.private_folder(tmp_path / "own")
    runner = zygote.runner(folder, gpu=False, deadline=time.monotonic() + 60, cancelled=lambda: False)
    opened = Session(runner, Target("cpu", None), 1 << 20)
    try:
        yield opened
    finally:
        opened.close()
        zygote.close()


def test_a_gate_takes_no_descriptor_once_the_runner_has_it(session: Session) -> None:
    gc.collect()  # What earlier tests left goes now, not between the two counts.
    before = _descriptors()
    for _ in range(3):
        Range(session, Device("cpu"))._opened()
    gc.collect()
    assert _descriptors() == before


def test_calls_are_made_over_what_was_drawn_and_not_over_what_a_window_left(session: Session) -> None:
    counts = "def f(x):\n    x += 1\n    if x.item() > 6:\n        raise IndexError('past its end')\n"
    kernel = Kernel(counts, KernelType.TORCH, None, {"function_name": "f"})
    session.load(kernel, Artifact(), None, 0)
    place, slots = Range(session, Device("cpu")), Slots(2, [torch.tensor([5])], (0,), [], "cpu")
    slots.fill_alike([torch.tensor([5])])
    for _ in range(3):
        window = place.window(slots)
        assert [outputs[0].item() for outputs in slots.read(window.snapshot)] == [6, 6]
        place.relocate(slots, 1 << 20)
    window = place.window(slots, meanwhile=lambda: slots.fill_alike([torch.tensor([2])]))
    assert [outputs[0].item() for outputs in slots.read(window.snapshot)] == [3, 3]


def test_what_marks_say_is_told_to_who_wants_it(session: Session) -> None:
    doubles = "def f(x):\n    return 2 * x\n"
    session.load(Kernel(doubles, KernelType.TORCH, None, {"function_name": "f"}), Artifact(), None, 0)
    one = torch.tensor([5])
    place, slots = Range(session, Device("cpu")), Slots(3, [one], (), [one], "cpu")
    slots.fill_alike([one])
    told = [len(place.window(slots, marked=marked, read=read).call_ms) for marked, read in WAYS]
    assert told == [3, 0, 0]


def test_a_layout_is_told_once_as_long_as_few_others_are_used(session: Session, monkeypatch: MonkeyPatch) -> None:
    doubles = "def f(x):\n    return 2 * x\n"
    session.load(Kernel(doubles, KernelType.TORCH, None, {"function_name": "f"}), Artifact(), None, 0)
    posted: list[str] = []
    post = session.runner.post

    def noted(message: Message) -> None:
        posted.extend(["layout"] if "groups" in message else [])
        post(message)

    monkeypatch.setattr(session.runner, "post", noted)
    place = Range(session, Device("cpu"))

    def answers(slots: Slots, number: int) -> list[float]:
        slots.fill_alike([torch.full((number,), float(number))])
        return [outputs[0].sum().item() for outputs in slots.read(place.window(slots).snapshot)]

    def layout(number: int) -> Slots:
        one = torch.zeros(number)
        return Slots(2, [one], (), [one], "cpu")

    layouts = {number: layout(number) for number in range(1, PLACES + 2)}
    for _ in range(3):
        for number in range(1, PLACES + 1):
            assert answers(layouts[number], number) == [2 * number * number] * 2
    assert len(posted) == PLACES
    assert answers(layouts[PLACES + 1], PLACES + 1) == [2 * (PLACES + 1) ** 2] * 2
    assert answers(layouts[PLACES], PLACES) == [2 * PLACES**2] * 2 and len(posted) == PLACES + 1
    assert answers(layouts[1], 1) == [2, 2] and len(posted) == PLACES + 2
    # Layouts of a moment take the place of one, and each other's.
    for _ in range(10):
        assert answers(layout(2), 2) == [8, 8]
    posted.clear()
    for number in (1, PLACES, PLACES + 1):
        assert answers(layouts[number], number) == [2 * number * number] * 2
    assert not posted
    # In another arena nothing lies where it was said to.
    assert answers(layout(1 << 12), 1 << 12) == [2 * (1 << 24)] * 2 and len(posted) == 1
    assert answers(layouts[1], 1) == [2, 2] and len(posted) == 2


def test_a_layout_that_is_gone_is_kept_by_nobody(session: Session) -> None:
    session.load_null()
    place, one = Range(session, Device("cpu"), null=True), torch.zeros(3)
    slots = Slots(2, [one], (), [one], "cpu")
    place.window(slots)
    gone = weakref.ref(slots)
    del slots
    gc.collect()
    assert gone() is None


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
