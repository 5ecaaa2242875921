"""Headers are precompiled by a process of their own, which finds the project wherever the worker was started."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from domain.settings import settings
from tasks.node.toolchain import Compilers
from tests.child_processes import running
from tests.tasks.example_jobs import until

WITHIN_S = 120


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compilers]:
    """With headers to be precompiled, by a compiler that gives up at once; libraries and the project on no path."""
    monkeypatch.setenv("PRECOMPILE_HEADERS", "on")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    made = Compilers(tmp_path / "compilers")
    if made.folder is None:
        pytest.skip("no C++ compiler here")
    config = Path(made.folder) / "toolchain.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"c++": "false"}))
    yield made
    made.close()
    settings.cache_clear()


def test_precompile_without_a_python_path_finds_the_project(
    compilers: Compilers, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    compilers.precompile()
    (process,) = running("tasks.node.toolchain")
    printed = ""

    def ended() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        return process.status() == psutil.STATUS_ZOMBIE

    until(ended, WITHIN_S)
    assert "no precompiled header" in printed
    compilers.precompile()
    assert "no headers are precompiled" not in caplog.text, "it has ended with 0"


def test_precompile_logs_a_failure_once(compilers: Compilers, caplog: pytest.LogCaptureFixture) -> None:
    compilers.precompile()
    (process,) = running("tasks.node.toolchain")
    process.kill()
    until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    with caplog.at_level(logging.WARNING, "tasks.node.toolchain"):
        compilers.precompile()
        compilers.precompile()
    assert caplog.text.count("no headers are precompiled") == 1
