"""A place for windows leaves nothing behind in the referee, whose process lives for thousands of jobs."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

from backends.backend import Target
from profiling.device import Device
from profiling.window import Range
from sandbox.launcher import Zygote
from sandbox.session import Session


def test_a_gate_takes_no_descriptor_once_the_runner_has_it(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path, interpret=True, memory_limit=1 << 30)
    folder = zygote.private_folder(tmp_path / "own")
    runner = zygote.runner(folder, gpu=False, deadline=time.monotonic() + 30, cancelled=lambda: False)
    session = Session(runner, Target("cpu", None), 1 << 20)
    try:
        before = _descriptors()
        for _ in range(3):
            Range(session, Device("cpu"))._opened()
        gc.collect()
        assert _descriptors() == before
    finally:
        session.close()
        zygote.close()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
