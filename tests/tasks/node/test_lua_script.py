"""The scripts of a process are those of its code, though the files were changed since."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from redis import Redis

from domain.paths import ROOT

CODE = """
import shutil, sys
from redis import Redis
from tasks.jobs.job_store import JobStore

shutil.rmtree("tasks/jobs/lua")
print(JobStore(Redis.from_url(sys.argv[1]), 60).cleanup(0))
"""


def test_a_process_keeps_the_scripts_that_it_was_started_with(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """A pool child that starts after an upgrade in place has the code of its worker, which was started before."""
    for package in ("domain", "sandbox", "tasks", "backends"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-c", CODE, redis_url], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "0", done.stderr
