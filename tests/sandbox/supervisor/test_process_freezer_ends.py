"""Whose end may wake others has ended before they count as frozen, and whoever is gone has not stayed."""

from __future__ import annotations

import dataclasses
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.isolation import process_tree
from sandbox.supervisor.process_freezer import CpuUsage, NotFrozen
from tests.conftest import die_with_parent
from tests.sandbox.counting import WITHIN_S, end, frozen_by, moves, still

CALLS = """
import ctypes, mmap, os, signal, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(36, 1, 0, 0, 0)  # as a runner is
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Who ends is gone at once.
"""

# A clone whose parent waits until the child ends, in state D; `how` says what befalls him meanwhile.
WAITING = (
    CALLS
    + """
if not os.fork():
    parent = os.getpid()
    if not libc.syscall(ctypes.c_long({"x86_64": 56, "aarch64": 220}[os.uname().machine]), 0x4000 | 17, 0, 0, 0, 0):
        if sys.argv[2] == "aborts":
            os.kill(parent, signal.SIGABRT)
        elif sys.argv[2] == "is told something":
            os.kill(parent, signal.SIGWINCH)
        while True:
            shared[0] = (shared[0] + 1) % 256
while True:
    shared[1] = (shared[1] + 1) % 256
"""
)


@pytest.mark.parametrize("how", ["waits", "is told something", "aborts"])
def test_who_ends_with_his_system_call_is_not_at_rest_in_it(counters: mmap.mmap, tmp_path: Path, how: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(tmp_path / "shared"), how], preexec_fn=die_with_parent
    )
    moves(counters, {0, 1})
    members = process_tree.with_descendants(process.pid)
    try:
        assert len(members) == 3
        if how == "aborts":
            with pytest.raises(NotFrozen):
                frozen_by(process.pid, 0.2)
        else:
            frozen = frozen_by(process.pid, WITHIN_S)
            assert frozen.pids == members and still(counters) and frozen.stayed_frozen
    finally:
        end(process, members)


LEAVING = (
    CALLS
    + """
for place in (1, 2):
    if not os.fork():
        while True:
            shared[place] = (shared[place] + 1) % 256
while True:
    shared[0] = (shared[0] + 1) % 256
"""
)


def test_who_is_gone_has_not_stayed_and_hides_nobody(counters: mmap.mmap, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", LEAVING, str(tmp_path / "shared")], preexec_fn=die_with_parent)
    moves(counters, {0, 1, 2})
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        one, other = frozen.pids - {process.pid}
        assert frozen.stayed_frozen
        hidden = {**frozen.usage, one: frozen.usage[one]._replace(ns=frozen.usage[one].ns + 10**9)}
        hidden[other] = CpuUsage(frozen.usage[other].ns - 4_000_000, frozen.usage[other].switches - 1)
        assert not dataclasses.replace(frozen, usage=hidden).stayed_frozen, "what one ran less covers what another ran"
        os.kill(one, signal.SIGKILL)
        until = time.monotonic() + WITHIN_S
        while Path(f"/proc/{one}").exists():
            assert time.monotonic() < until
        assert not frozen.stayed_frozen
    finally:
        end(process, frozen.pids - {one})


# Reads that the kernel waits for as its process ends, in state D; what that does to a child of its own is seen in 0.
READING = (
    CALLS
    + """
path, size, many = sys.argv[2], 1 << 20, 256
setup, submit = {"x86_64": (206, 209), "aarch64": (0, 2)}[os.uname().machine]
if not os.fork():
    os.setsid()  # Its child's group has nobody else of its session: an orphan as it ends, which the kernel continues.
    file, context = os.open(path, os.O_RDONLY | os.O_DIRECT), ctypes.c_ulong()
    if libc.syscall(ctypes.c_long(setup), many, ctypes.byref(context)):
        shared[2] = 2
        os._exit(1)
    memory = mmap.mmap(-1, size)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    reads = [
        ctypes.create_string_buffer(
            struct.pack("<QIIHhIQQqQII", 0, 0, 0, 0, 0, file, start, size, n % 64 * size, 0, 0, 0)
        )
        for n in range(many)
    ]
    parent = os.getpid()
    if not os.fork():
        os.setpgid(0, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if sys.argv[3] == "by its parent's end":
            libc.prctl(1, signal.SIGCONT, 0, 0, 0)
        while os.getppid() == parent:
            shared[1] = 1
        while True:
            shared[0] = (shared[0] + 1) % 256
    while not shared[1]:
        pass
    pointers = (ctypes.c_void_p * many)(*map(ctypes.addressof, reads))
    shared[2] = 1 if libc.syscall(ctypes.c_long(submit), context, many, pointers) > 0 else 2
    os._exit(0)
while True:
    time.sleep(0.001)
"""
)


@pytest.mark.parametrize("how", ["by its parent's end", "as an orphan"])
def test_whose_end_wakes_another_has_ended_before(counters: mmap.mmap, tmp_path: Path, how: str) -> None:
    (tmp_path / "large").write_bytes(os.urandom(64 << 20))
    with open(tmp_path / "large") as large:
        os.fsync(large.fileno())
    process = subprocess.Popen(
        [sys.executable, "-c", READING, str(tmp_path / "shared"), str(tmp_path / "large"), how],
        preexec_fn=die_with_parent,
    )
    members: frozenset[int] = frozenset()
    try:
        until = time.monotonic() + WITHIN_S
        while not counters[2]:
            assert time.monotonic() < until
        if counters[2] == 2:
            pytest.skip("no reads here that go on behind their call")
        frozen = frozen_by(process.pid, WITHIN_S)
        members, before = frozen.pids, bytes(counters)
        while any(process_tree.exiting(one) for one in members if Path(f"/proc/{one}").exists()):
            assert time.monotonic() < until
        assert bytes(counters) == before and still(counters) and frozen.stayed_frozen
    finally:
        end(process, members)
