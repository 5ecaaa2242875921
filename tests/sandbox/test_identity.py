"""A thread may look into another user's processes for a moment, and is afterwards what it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LOOKS = """
import ctypes, os
from sandbox import identity
from sandbox.limits import die_with_parent
from sandbox.system_calls import prctl
from tests.sandbox.container import DOCKERS_CAPABILITIES

USER = 54_324
identity.keep_only(DOCKERS_CAPABILITIES)
die_with_parent(os.getppid())

def state():
    signal = ctypes.c_int()
    prctl(2, ctypes.addressof(signal))
    users = [line for line in open("/proc/thread-self/status") if line.startswith(("Uid", "Gid", "CapEff"))]
    return users, signal.value, prctl(3)

def looked_into(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/map_files")) and os.readlink(f"/proc/{pid}/fd/0") != ""
    except PermissionError:
        return False

read_end, write_end = os.pipe()
child = os.fork()
if not child:
    identity.become(USER, search_everywhere=False)
    os.write(write_end, b"x")
    os.read(os.pipe()[0], 1)
os.read(read_end, 1)
before = state()
print(looked_into(child))
with identity.looking_as(USER):
    print(looked_into(child))
print(looked_into(child), state() == before, before[1:])
os.kill(child, 9)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_looking_as_a_user_ends_as_it_began() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKS], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False", "True", "False True (9, 1)"], done
