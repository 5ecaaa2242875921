"""Who has started a process, as the system tells it."""

from __future__ import annotations

import os
import subprocess
import sys

from sandbox.census import parent_of
from tasks.workbench import Workbench

GONE = 2**22 + 1
"""No system has so high a number for a process."""


def test_a_process_has_its_parent_and_one_that_is_gone_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert parent_of(child.pid) == os.getpid()
        child.communicate()
    assert parent_of(child.pid) == parent_of(GONE) == 0


def test_what_this_process_has_started_is_its_own_and_the_workers() -> None:
    bench = object.__new__(Workbench)  # Of the machine's processes alone; a whole one starts a zygote.
    starts = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()']); print(p.pid, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{starts}; p.wait()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        own = {os.getpid(), os.getppid(), child.pid, grandchild}
        assert bench.own_pids([*own, GONE]) == own
        assert bench.own_pids([child.pid, parent_of(os.getppid())]) == {child.pid}
        child.communicate()
