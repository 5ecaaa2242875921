"""A frozen process and its descendants do nothing until they are thawed."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.isolation import process_tree
from sandbox.supervisor import process_freezer
from sandbox.supervisor.process_freezer import thaw
from tests.conftest import die_with_parent
from tests.sandbox.counting import WITHIN_S, end, frozen_by, moves, pidfd, still

COUNTING = """
import ctypes, mmap, os, sys, threading

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # As in a runner: it adopts orphans below it.
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4)

def count(place):
    while True:
        shared[place] = (shared[place] + 1) % 256

def child(place, *, orphaned=False):
    if os.fork() == 0:
        if orphaned:
            os.setsid()
            if os.fork():
                os._exit(0)
        count(place)

if sys.argv[2] == "family":
    child(1)
    child(2, orphaned=True)
threading.Thread(target=count, args=(3,), daemon=True).start()
count(0)
"""


def started(kind: str, counters: mmap.mmap, folder: Path, places: set[int]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTING, str(folder / "shared"), kind], preexec_fn=die_with_parent
    )
    moves(counters, places)
    return process


def state(pid: int, thread: int | None = None) -> str:
    """The state of the process's main thread, or of another one."""
    return Path(f"/proc/{pid}/task/{thread or pid}/stat").read_text().rpartition(") ")[2][0]


def thawed(pid: int, members: frozenset[int]) -> None:
    with pidfd(pid) as descriptor:
        thaw(pid, members, descriptor)


@pytest.mark.parametrize(
    ("kind", "places", "members"), [("alone", {0, 3}, 1), ("family", {0, 1, 2, 3}, 3)], ids=["alone", "family"]
)
def test_a_family_stops_and_continues(
    counters: mmap.mmap, tmp_path: Path, kind: str, places: set[int], members: int
) -> None:
    process = started(kind, counters, tmp_path, places)
    frozen = frozen_by(process.pid)
    try:
        assert still(counters)
        # A process that has ended and was not waited for yet counts as a member.
        assert process.pid in frozen and len(frozen) >= members
        thawed(process.pid, frozen)
        moves(counters, places)
    finally:
        end(process, frozen)


def test_a_child_forked_during_the_search_stops_too(
    counters: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that is under way when its process is stopped completes first, and one search may miss the child."""
    process = started("family", counters, tmp_path, {0, 1, 2, 3})
    searches = []

    def misses_children_at_first(pid: int) -> set[int]:
        searches.append(pid)
        if len(searches) == 2:  # This search begins before the process has stopped, and ends after that.
            until = time.monotonic() + WITHIN_S
            while any(state(pid, int(thread)) != "T" for thread in os.listdir(f"/proc/{pid}/task")):
                assert time.monotonic() < until
        return {pid} if len(searches) <= 2 else process_tree.with_descendants(pid)

    monkeypatch.setattr(process_freezer, "with_descendants", misses_children_at_first)
    frozen = frozen_by(process.pid)
    try:
        assert still(counters) and len(searches) > 3
    finally:
        end(process, frozen)


def test_an_exception_of_the_wait_ends_the_search(counters: mmap.mmap, tmp_path: Path) -> None:
    process = started("alone", counters, tmp_path, {0})

    def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        frozen_by(process.pid, late)
    end(process, ())


# A clone whose parent waits in the kernel, in state D, until the child ends.
WAITING = """
import ctypes, mmap, os, sys

shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4)
if not os.fork():
    clone = ctypes.c_long({"x86_64": 56, "aarch64": 220}[os.uname().machine])
    ctypes.CDLL(None).syscall(clone, 0x4000 | 17, 0, 0, 0, 0)
    while True:
        shared[0] = (shared[0] + 1) % 256
while True:
    shared[1] = (shared[1] + 1) % 256
"""


def test_a_process_that_waits_for_a_stopped_child_counts_as_stopped(counters: mmap.mmap, tmp_path: Path) -> None:
    """As one that starts a program by vfork: waiting for its stop would never end."""
    process = subprocess.Popen([sys.executable, "-c", WAITING, str(tmp_path / "shared")], preexec_fn=die_with_parent)
    moves(counters, {0, 1})
    frozen = frozen_by(process.pid)
    try:
        assert len(frozen) == 3 and still(counters)
    finally:
        end(process, frozen)


IN_A_CALL = """
import mmap, os, sys

shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4)
while True:
    shared[0] = (shared[0] + 1) % 256
"""


def test_a_process_that_seems_to_be_in_a_call_is_signalled(
    counters: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on when the call ends, unless the signal is pending then."""
    process = subprocess.Popen([sys.executable, "-c", IN_A_CALL, str(tmp_path / "shared")], preexec_fn=die_with_parent)
    moves(counters, {0})
    monkeypatch.setattr(process_freezer, "STOPPED", process_freezer.STOPPED + b"RS")  # As if it always was in a call.
    frozen = frozen_by(process.pid)
    until = time.monotonic() + WITHIN_S
    while state(process.pid) != "T":
        assert time.monotonic() < until, "it was not signalled"
    end(process, frozen)


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process outside the runner's family; the tests give it the pid that a child had a moment ago."""
    process = subprocess.Popen(["sleep", "1000"], preexec_fn=die_with_parent)
    until = time.monotonic() + WITHIN_S
    while state(process.pid) != "S":
        assert time.monotonic() < until
    yield process.pid
    process.kill()
    process.wait()


def test_a_stranger_with_the_pid_of_a_child_is_not_stopped(
    counters: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bystander: int
) -> None:
    process = started("family", counters, tmp_path, {0, 1, 2, 3})
    searches = []

    def one_too_many_at_first(pid: int) -> set[int]:
        searches.append(pid)
        return process_tree.with_descendants(pid) | ({bystander} if len(searches) == 1 else set())

    monkeypatch.setattr(process_freezer, "with_descendants", one_too_many_at_first)
    frozen = frozen_by(process.pid)
    try:
        assert still(counters) and len(searches) > 1
        assert state(bystander) == "S"
    finally:
        end(process, frozen - {bystander})


def test_a_stranger_with_the_pid_of_a_child_is_not_continued(
    counters: mmap.mmap, tmp_path: Path, bystander: int
) -> None:
    process = started("family", counters, tmp_path, {0, 1, 2, 3})
    frozen = frozen_by(process.pid)
    try:
        os.kill(bystander, signal.SIGSTOP)
        os.waitid(os.P_PID, bystander, os.WSTOPPED | os.WNOWAIT)
        thawed(process.pid, frozen | {bystander})
        moves(counters, {0, 1, 2, 3})
        assert state(bystander) == "T"
    finally:
        end(process, frozen)
