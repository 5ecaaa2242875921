"""A family that changes while it is looked at is judged by what it has, not by what was read at different moments."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.fault import KernelFault
from domain.result import Status
from sandbox.isolation import process_tree
from sandbox.supervisor import memory_accounting
from sandbox.supervisor import resource_watch as usage_module
from sandbox.supervisor.memory_accounting import Inode, Used
from sandbox.supervisor.resource_watch import UNSETTLED_S, Usage
from tests.conftest import die_with_parent

SHARED = 128 << 20
CHILDREN = 7
ENOUGH, TOO_LITTLE = 200 << 20, 100 << 20
WITHIN_S = 10.0

SHARING = {
    "a file without a name": "file, kind = os.memfd_create('shared'), mmap.MAP_SHARED\nos.truncate(file, size)",
    "what children have from their parent": "file, kind = -1, mmap.MAP_PRIVATE",
}
SOURCE = """
import mmap, os, signal
size = {size}
{made}
memory = mmap.mmap(file, size, flags=kind)
for place in range(0, size, 4096):
    memory[place] = 1
for _ in range({children}):
    if not os.fork():
        sum(memory[::4096])
        break
os.write(1, b".")
signal.pause()
"""


@pytest.fixture(params=SHARING)
def parent(request: pytest.FixtureRequest) -> Iterator[int]:
    """Of seven children, all of whom have its memory before their eyes."""
    source = SOURCE.format(size=SHARED, children=CHILDREN, made=SHARING[request.param])
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", source], stdout=subprocess.PIPE, bufsize=0, preexec_fn=die_with_parent
    )
    assert process.stdout is not None
    for _ in range(1 + CHILDREN):
        assert process.stdout.read(1) == b"."
    members = process_tree.with_descendants(process.pid)
    yield process.pid
    for pid in members:  # Those that have ended keep their numbers: their parent has not asked for them.
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def end_when_read(parent: int, of_a_look: int, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Lets so many children end in each look, each once it was read and before another is; which ones, by look."""
    used, mapped = memory_accounting.used, memory_accounting.mapped_files
    looks: list[list[int]] = []

    def look(*args, **kwargs):
        looks.append([])
        return used(*args, **kwargs)

    def read(pid: int) -> list[tuple[Inode, int]]:
        found = list(mapped(pid))
        if pid != parent and len(looks[-1]) < of_a_look:
            os.kill(pid, signal.SIGKILL)
            ended = os.pidfd_open(pid)
            assert select.select([ended], [], [], WITHIN_S)[0]
            os.close(ended)
            looks[-1].append(pid)
        return found

    monkeypatch.setattr(memory_accounting, "used", look)
    monkeypatch.setattr(memory_accounting, "mapped_files", read)
    return looks


NOW = 1_000_000.0


@pytest.fixture(autouse=True)
def every_check_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the last reading took."""
    monkeypatch.setattr(usage_module, "FAMILY_EVERY_S", -math.inf)


def check(usage: Usage, after_s: float) -> None:
    usage.check(NOW + after_s, idle=True)


def test_children_that_end_during_a_reading_are_not_counted_twice(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = end_when_read(parent, CHILDREN, monkeypatch)
    usage = Usage(parent, tmp_path, ENOUGH)
    for after_s in (1.0, 2.0, 2.0 + UNSETTLED_S):
        check(usage, after_s)
    assert [len(ended) for ended in looks] == [CHILDREN, 0, 0]


def test_a_family_above_the_limit_is_stopped_once_it_keeps_still(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = end_when_read(parent, CHILDREN, monkeypatch)
    usage = Usage(parent, tmp_path, TOO_LITTLE)
    check(usage, 1.0)
    with pytest.raises(KernelFault, match=r"used more than .*RUNNER_MEMORY_MIB") as caught:
        check(usage, 2.0)
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert [len(ended) for ended in looks] == [CHILDREN, 0]


def test_a_family_that_never_keeps_still_is_stopped_after_a_time(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = end_when_read(parent, 1, monkeypatch)
    usage = Usage(parent, tmp_path, TOO_LITTLE)
    for after_s in (1.0, 2.0, 1.0 + UNSETTLED_S):
        check(usage, after_s)
    with pytest.raises(KernelFault, match="used more than"):
        check(usage, 1.5 + UNSETTLED_S)
    assert [len(ended) for ended in looks] == [1, 1, 1, 1]


def test_a_reading_within_the_limit_ends_the_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a process that changes twice within an hour would be one that never keeps still."""
    unsettled, within = Used(2, 0), Used(1, 1)
    readings = iter([unsettled, within, unsettled, unsettled, unsettled])
    monkeypatch.setattr(memory_accounting, "used", lambda *_, **__: next(readings))
    usage = Usage(os.getpid(), tmp_path, 1)
    for after_s in (0.0, 1.0, 2 * UNSETTLED_S, 3 * UNSETTLED_S):
        check(usage, after_s)
    with pytest.raises(KernelFault, match="used more than"):
        check(usage, 3.5 * UNSETTLED_S)


def test_a_process_that_is_forked_during_a_reading_leaves_it_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that it shares count in full in processes read before it, and in part in those read after it."""
    forked: list[subprocess.Popen[bytes]] = []

    def read(*_: object, **__: object) -> Used:
        forked.append(subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE))
        return Used(2, 2)

    monkeypatch.setattr(memory_accounting, "used", read)
    usage = Usage(os.getpid(), tmp_path, 1)
    try:
        check(usage, 0.0)
        with pytest.raises(KernelFault, match="used more than"):
            check(usage, 1.0 + UNSETTLED_S)
    finally:
        for process in forked:
            process.kill()
            process.communicate()
