"""The client installs by itself: its wheel has all it needs, and nothing of the server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from domain.paths import ROOT


@pytest.mark.slow
def test_its_wheel_works_elsewhere(tmp_path: Path) -> None:
    source, target = tmp_path / "client", tmp_path / "target"
    shutil.copytree(ROOT / "client", source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", target, source], check=True, capture_output=True, cwd=tmp_path, timeout=120)
    assert (target / "kernel_eval_client" / "py.typed").exists()
    assert len([*(target / "kernel_eval_client" / "suites" / "starter").glob("*/*/reference.py")]) == 40
    code = "import sys, kernel_eval_client as k; print(k.__file__, *{'api', 'domain', 'stack'} & sys.modules.keys())"
    environment = {"PYTHONPATH": str(target)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(target / "kernel_eval_client" / "__init__.py")], done.stderr
    script = [sys.executable, target / "bin" / "kernel-eval", "evaluate", "nosuch.py"]
    refused = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert refused.returncode == 2 and "nosuch.py cannot be read" in refused.stderr
