"""Whoever is to end a user's processes may be stopped by them: then another does it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from domain.fault import InfrastructureFault
from sandbox.isolation import process_tree


def test_kill_user_with_a_stopped_helper_starts_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped_at_first(user: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        if len(os.listdir(tmp_path)) == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)

    monkeypatch.setattr(process_tree, "HELPER_S", 0.2)
    process_tree.kill_user(os.getuid(), stopped_at_first)
    helpers = os.listdir(tmp_path)
    assert len(helpers) >= 2, "a busy machine may let the second miss its time too"
    assert not any(Path(f"/proc/{pid}").exists() for pid in helpers), "nothing of it is left"


def test_kill_user_with_only_stopped_helpers_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "HELPERS", 2)
    monkeypatch.setattr(process_tree, "HELPER_S", 0.05)
    with pytest.raises(InfrastructureFault, match="could not be killed"):
        process_tree.kill_user(os.getuid(), lambda user: os.kill(os.getpid(), signal.SIGSTOP))
