"""Memory of several processes: each page once, whoever has it, and nothing of what the referee has lent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from backends.base import Artifact, Target
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.isolation import process_tree, scratch_dir
from sandbox.supervisor import memory_accounting
from sandbox.supervisor.memory_accounting import SharedWithReferee
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote

MIB = 1 << 20
SIZE = 64 * MIB
ENDLESS = 1 << 50

HAS = """
import ctypes, mmap, os, sys, threading
size = 64 << 20

def filled(descriptor):
    for _ in range(64):
        os.write(descriptor, bytes(1 << 20))
    return descriptor

def touched(memory):
    for place in range(0, len(memory), 4096):
        memory[place] = 1
    return memory

def shared_by_four(memory):
    for _ in range(3):
        if not os.fork():
            sum(memory[::4096])
            os.write(1, b"ready\\n")
            sys.stdin.read()
            os._exit(0)
    return memory

def left_by_its_first_thread(memory):
    def last():
        while b"Z (zombie)" not in open(f"/proc/self/task/{os.getpid()}/status", "rb").read():
            pass
        os.write(1, b"ready\\n")
        sys.stdin.read()
        os._exit(0)
    threading.Thread(target=last).start()
    ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)  # exit, of this thread alone

held = {what}
os.write(1, b"ready\\n")
sys.stdin.read()
"""

Start = Callable[..., set[int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that has that, and as many of its family as say that they are ready; returns all of them."""
    started: list[subprocess.Popen[str]] = []

    def one(what: str, ready: int = 1, lent: tuple[int, ...] = ()) -> set[int]:
        command = [sys.executable, "-S", "-c", HAS.replace("{what}", what), *map(str, lent)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=lent, bufsize=1
        )
        started.append(process)
        assert process.stdout is not None
        for _ in range(ready):
            assert process.stdout.readline() == "ready\n"
        return process_tree.with_descendants(process.pid)

    yield one
    for process in started:
        process.communicate()


def used(pids: set[int], *, enough: int = 0, lent: SharedWithReferee | None = None) -> int:
    return memory_accounting.used(pids, enough=enough, named={}, exempt=lent or SharedWithReferee()).bytes


@pytest.mark.parametrize(
    "what",
    [
        "left_by_its_first_thread(touched(bytearray(size)))",
        "left_by_its_first_thread(filled(os.memfd_create('x')))",
        "touched(bytearray(size))",
        "touched(mmap.mmap(-1, size))",
        "filled(os.memfd_create('x'))",
        "touched(mmap.mmap(filled(os.memfd_create('x')), size))",
    ],
)
def test_it_is_seen_and_once(start: Start, what: str) -> None:
    pids = start(what)
    assert SIZE <= used(pids) < 1.5 * SIZE
    assert used(pids, enough=ENDLESS) >= SIZE


@pytest.mark.parametrize("what", ["bytearray(size)", "mmap.mmap(-1, size)"])
def test_what_four_processes_share_counts_once_where_it_matters(start: Start, what: str) -> None:
    pids = start(f"shared_by_four(touched({what}))", ready=4)
    assert len(pids) == 4
    assert SIZE <= used(pids) < 2 * SIZE
    assert used(pids, enough=ENDLESS) > 3 * SIZE


def test_of_many_processes_each_counts_for_itself(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_accounting, "MAX_EXACT_PROCESSES", 3)
    assert used(start("shared_by_four(touched(bytearray(size)))", ready=4)) > 4 * SIZE


def test_what_a_process_changes_of_a_file_is_its_own(start: Start) -> None:
    pids = start("touched(mmap.mmap(filled(os.memfd_create('x')), size, flags=mmap.MAP_PRIVATE))")
    assert 2 * SIZE <= used(pids) < 2.5 * SIZE


def test_what_was_lent_is_not_counted(start: Start) -> None:
    descriptor = os.memfd_create("lent")
    os.ftruncate(descriptor, SIZE)
    lent = SharedWithReferee()
    lent.add(descriptor)
    pids = start("touched(mmap.mmap(int(sys.argv[1]), size))", lent=(descriptor,))
    os.close(descriptor)
    assert lent.bytes == SIZE
    assert used(pids) >= SIZE > 2 * used(pids, lent=lent)


def test_a_process_that_is_gone_has_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert memory_accounting.upper_bound(gone.pid) == used({gone.pid}) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_folders_in_shared_memory_are_counted_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, shared, folder = 54_323, tmp_path / "shm", tmp_path / "job"
    monkeypatch.setattr(scratch_dir, "SHARED_MEMORY", shared)
    inner = shared / "made" / "inner"
    inner.mkdir(parents=True)
    folder.mkdir()
    (shared / "others").touch()
    (inner / "large").write_bytes(bytes(MIB))
    for place in (folder, shared / "made", inner, inner / "large"):
        os.chown(place, user, user)
    assert sum(scratch_dir.shared(user).values()) >= MIB
    scratch_dir.remove(folder)
    assert [place.name for place in shared.iterdir()] == ["others"] and not folder.exists()


def test_an_arena_is_not_the_kernels(tmp_path: Path) -> None:
    arena = 600 * MIB
    zygote = Zygote(tmp_path, arch=None, memory_limit=512 * MIB)
    try:
        assert probed(zygote, tmp_path / "small", arena, own=1, for_s=0.5) is None
        # Until it is stopped: where a host is busy nobody looks for a second.
        assert probed(zygote, tmp_path / "large", arena, own=600, for_s=45) is Status.OUT_OF_MEMORY
    finally:
        zygote.close()


def probed(zygote: Zygote, folder: Path, arena: int, *, own: int, for_s: float) -> Status | None:
    """How a kernel ends that is handed a tensor of that size and has so many MiB of its own beside it for so long; None
    if well."""
    source = f"""
import mmap, time

def f(x):
    held = mmap.mmap(-1, {own} << 20)
    held.write(bytes(len(held)))
    total = x.amax()
    time.sleep({for_s})
    return total
"""
    zygote.private_folder(folder)
    runner = zygote.runner(folder, gpu=False, deadline=time.monotonic() + 60, cancelled=lambda: False)
    session = Session(runner, Target("cpu", None), 2 * arena)
    try:
        session.load(Kernel(source, KernelType.TORCH, None, {"function_name": "f"}), Artifact(), None, 0)
        session.probe([torch.ones(arena // 4)], 1)
    except KernelFault as fault:
        return fault.status
    finally:
        session.close()
    return None
