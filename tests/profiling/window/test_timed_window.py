"""A place for windows leaves nothing behind in the referee, whose process lives for thousands of jobs."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from backends.base import Artifact, Target
from domain.kernel import Kernel, KernelType
from profiling.gpu.timing_device import Device
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import WindowSession
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote

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
        WindowSession(session, Device("cpu"))._open_gate()
    gc.collect()
    assert _descriptors() == before


def test_calls_are_made_over_what_was_drawn_and_not_over_what_a_window_left(session: Session) -> None:
    counts = "def f(x):\n    x += 1\n    if x.item() > 6:\n        raise IndexError('past its end')\n"
    kernel = Kernel(counts, KernelType.TORCH, None, {"function_name": "f"})
    session.load(kernel, Artifact(), None, 0)
    place, slots = WindowSession(session, Device("cpu")), Slots(2, [torch.tensor([5])], (0,), [], "cpu")
    slots.broadcast([torch.tensor([5])])
    for _ in range(3):
        window = place.window(slots)
        assert [outputs[0].item() for outputs in slots.read(window.snapshot)] == [6, 6]
        place.shift_allocations(slots, 1 << 20)
    window = place.window(slots, meanwhile=lambda: slots.broadcast([torch.tensor([2])]))
    assert [outputs[0].item() for outputs in slots.read(window.snapshot)] == [3, 3]


def test_what_marks_say_is_told_to_who_wants_it(session: Session) -> None:
    doubles = "def f(x):\n    return 2 * x\n"
    session.load(Kernel(doubles, KernelType.TORCH, None, {"function_name": "f"}), Artifact(), None, 0)
    one = torch.tensor([5])
    place, slots = WindowSession(session, Device("cpu")), Slots(3, [one], (), [one], "cpu")
    slots.broadcast([one])
    told = [len(place.window(slots, with_events=marked, read=read).call_ms) for marked, read in WAYS]
    assert told == [3, 0, 0]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
