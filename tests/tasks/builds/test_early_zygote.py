"""A session whose zygote was started early: what becomes of it where that process dies before its set-up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from backends.base import Target
from domain.settings import settings
from sandbox.supervisor.zygote_client import ZygoteProcess
from tasks.builds.build_session import BuildSession
from tasks.builds.early_zygote import EarlyZygote
from tasks.node.scratch_dir import ScratchDir


def test_a_zygote_that_died_before_its_set_up_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    settings.cache_clear()
    folder = ScratchDir(tmp_path / "work")
    early = EarlyZygote(folder, ZygoteProcess(folder.path, gpu=False))
    session = BuildSession(Target("cpu"), early=early)
    try:
        os.kill(early.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, early.process.pid, os.WEXITED | os.WNOWAIT)
        session.start_zygote()
        assert session.zygote.alive
        assert session.zygote.pid != early.process.pid
    finally:
        session.close()
        settings.cache_clear()
