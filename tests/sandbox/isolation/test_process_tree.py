"""Whoever is to end a user's processes may be stopped by them: then another does it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from domain.fault import InfrastructureFault
from sandbox.isolation import process_tree


def test_a_helper_that_is_stopped_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped_at_first(user: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        if len(os.listdir(tmp_path)) == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)

    monkeypatch.setattr(process_tree, "_kill_all_as", stopped_at_first)
    monkeypatch.setattr(process_tree, "HELPER_S", 0.2)
    process_tree.kill_user(os.getuid())
    helpers = os.listdir(tmp_path)
    assert len(helpers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in helpers), "nothing of it is left"


def test_where_none_gets_it_done_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "_kill_all_as", lambda user: os.kill(os.getpid(), signal.SIGSTOP))
    monkeypatch.setattr(process_tree, "HELPERS", 2)
    monkeypatch.setattr(process_tree, "HELPER_S", 0.05)
    with pytest.raises(InfrastructureFault, match="could not be killed"):
        process_tree.kill_user(os.getuid())
