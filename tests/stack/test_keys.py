"""`python -m stack keys`, as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from domain.paths import ROOT


def test_a_file_that_cannot_be_written_names_its_setting() -> None:
    command = [sys.executable, "-m", "stack", "keys", "add", "a", "--scope", "read"]
    settings = {**os.environ, "API_KEYS_FILE": "/proc/nosuch/keys.json"}
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 1 and "name another file with API_KEYS_FILE" in done.stderr


def test_a_list_without_keys_says_how_to_make_one(tmp_path: Path) -> None:
    settings = {**os.environ, "API_KEYS_FILE": str(tmp_path / "keys.json")}
    command = [sys.executable, "-m", "stack", "keys", "list"]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=True)
    assert done.stdout == "" and "There are no keys yet: make one with `python -m stack keys add" in done.stderr
