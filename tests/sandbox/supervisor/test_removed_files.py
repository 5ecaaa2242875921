"""Files that were removed and are still held count, by their size; what others write to the disk does not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.fault import KernelFault
from domain.result import Status
from sandbox.isolation import process_tree, scratch_dir
from sandbox.isolation.rlimits import MAX_FILE_BYTES
from sandbox.supervisor import removed_files
from sandbox.supervisor.resource_watch import FOLDER_EVERY_S, Usage
from tests.conftest import die_with_parent

SIZE = 1 << 20
ENDLESS = 1 << 50

HOLDS = """
import ctypes, os, socket, sys
size = 1 << 20

def file(name):
    opened = os.open(name, os.O_CREAT | os.O_RDWR)
    os.write(opened, b"x" * size)
    return opened

def mapped(opened, length):
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    assert libc.mmap(None, ctypes.c_size_t(length), 1, 1, opened, ctypes.c_long(0)) not in (None, 2**64 - 1)
    os.close(opened)

def sent(opened):
    global sockets
    sockets = socket.socketpair()
    socket.send_fds(sockets[0], [b"x"], [opened])
    os.close(opened)

{what}
print("ready", flush=True)
sys.stdin.read()
"""
KEPT = "file('named')"
OPEN = "file('removed'); os.unlink('removed')"
MAPPED = "mapped(file('removed'), 4096); os.unlink('removed')"
SENT = "sent(file('removed')); os.unlink('removed')"


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Holds what the parameter says, in `tmp_path`."""
    started = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDS.replace("{what}", request.param)],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # What pytest captures is a removed file too.
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert started.stdout is not None and started.stdout.readline() == "ready\n"
    yield started.pid
    started.communicate()


ODD = "mapped(file('a\\r (deleted)\\n'), 4096); os.unlink('a\\r (deleted)\\n')"


@pytest.mark.parametrize("process", [OPEN, MAPPED, ODD, f"{OPEN}; {MAPPED}"], indirect=True)
def test_each_is_told_by_its_size_or_as_one_of_unknown_size(process: int, tmp_path: Path) -> None:
    found = removed_files.held([process], tmp_path)
    assert not found.out_of_sight
    assert len(found.sizes | dict.fromkeys(found.unsized)) in (1, 2)
    assert found.bytes == SIZE * len(found.sizes)
    # Of one that is only mapped the kernel tells the size to a worker with more capabilities.
    assert found.max_unsized_bytes == len(found.unsized) * MAX_FILE_BYTES


@pytest.mark.parametrize("process", [KEPT], indirect=True)
def test_a_file_with_a_name_is_none_of_them(process: int, tmp_path: Path) -> None:
    found = removed_files.held([process], tmp_path)
    assert found.bytes == found.max_unsized_bytes == 0


@pytest.mark.parametrize("process", [SENT], indirect=True)
def test_what_is_on_its_way_through_a_socket_may_be_any_number(process: int, tmp_path: Path) -> None:
    found = removed_files.held([process], tmp_path)
    assert found.out_of_sight and found.max_unsized_bytes > ENDLESS


LED_BY_A_THREAD_THAT_ENDED = f"""
import threading
def stay():
    {OPEN}
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.parametrize("process", [LED_BY_A_THREAD_THAT_ENDED], indirect=True)
def test_files_of_a_process_whose_first_thread_has_ended_count(process: int, tmp_path: Path) -> None:
    assert removed_files.held([process], tmp_path).bytes == SIZE


@contextlib.contextmanager
def inspecting_as_a_user() -> Iterator[None]:
    """With the rights of a worker that inspects a runner without the capability to trace every process."""
    own = os.geteuid()
    os.seteuid(own or 54_321)
    try:
        yield
    finally:
        os.seteuid(own)


ENDED = "os.fork() or os._exit(0); os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"


@pytest.mark.parametrize("process", [ENDED], indirect=True)
def test_a_process_that_has_ended_hides_nothing(process: int) -> None:
    """The kernel lets root alone see the folders of a process that its parent has not waited for."""
    ended = process_tree.children(process)
    assert len(ended) == 1
    with inspecting_as_a_user():
        with pytest.raises(PermissionError):
            os.listdir(f"/proc/{min(ended)}/fd")
        assert not removed_files.held(ended, Path("/tmp")).out_of_sight


def verdict(process: int, folder: Path, lost: int, monkeypatch: pytest.MonkeyPatch) -> KernelFault | None:
    """What a check finds once the disk has lost that much."""
    usage = Usage(process, folder, ENDLESS)
    usage.begin()
    free = scratch_dir.free_bytes(folder) - lost
    monkeypatch.setattr(scratch_dir, "free_bytes", lambda _: free)
    try:
        usage.check(time.monotonic() + 2 * FOLDER_EVERY_S, idle=True)
    except KernelFault as fault:
        return fault
    return None


@pytest.mark.parametrize("process", [KEPT, OPEN], indirect=True)
def test_what_others_write_to_the_disk_is_not_its_doing(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict(process, tmp_path, 2 * scratch_dir.MAX_BYTES, monkeypatch) is None


@pytest.mark.parametrize("process", [SENT], indirect=True)
def test_who_hides_files_while_the_disk_fills_is_stopped(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = verdict(process, tmp_path, 2 * scratch_dir.MAX_BYTES, monkeypatch)
    assert fault is not None and fault.status is Status.OUT_OF_MEMORY
    assert "files that it had removed" in str(fault)


@pytest.mark.parametrize("process", [SENT], indirect=True)
def test_who_hides_files_while_it_does_not_goes_on(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict(process, tmp_path, scratch_dir.MAX_BYTES // 2, monkeypatch) is None


@pytest.mark.parametrize("process", [f"{OPEN}; {MAPPED}; {OPEN}"], indirect=True)
def test_removed_files_count_with_what_the_disk_has_lost(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_dir, "MAX_BYTES", SIZE)
    fault = verdict(process, tmp_path, 3 * SIZE, monkeypatch)
    assert fault is not None and fault.status is Status.OUT_OF_MEMORY
