"""A family that changes while it is looked at is judged by what it has, not by what was read at different moments."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.fault import KernelFault
from domain.result import Status
from sandbox import census, host_memory
from sandbox.host_memory import Inode
from sandbox.usage import FAMILY_EVERY_S, Usage
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
    members = census.family(process.pid)
    yield process.pid
    for pid in members:  # Those that have ended keep their numbers: their parent has not asked for them.
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def end_when_read(parent: int, of_a_look: int, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Lets so many children end in each look, each once it was read and before another is; which ones, by look."""
    used, mapped = host_memory.used, host_memory._mapped
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

    monkeypatch.setattr(host_memory, "used", look)
    monkeypatch.setattr(host_memory, "_mapped", read)
    return looks


def check(parent: int, folder: Path, limit: int) -> None:
    Usage(parent, folder, limit).check(time.monotonic() + 2 * FAMILY_EVERY_S, idle=True)


def test_children_that_end_while_they_are_counted_leave_nobody_more(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = end_when_read(parent, CHILDREN, monkeypatch)
    check(parent, tmp_path, ENOUGH)
    assert [len(ended) for ended in looks] == [CHILDREN, 0]


def test_too_much_is_too_much_whoever_ends(parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = end_when_read(parent, CHILDREN, monkeypatch)
    with pytest.raises(KernelFault, match="used more than") as caught:
        check(parent, tmp_path, TOO_LITTLE)
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert [len(ended) for ended in looks] == [CHILDREN, 0]


@pytest.mark.parametrize(("of_a_look", "seen"), [(0, [0]), (1, [1, 1, 1])], ids=["keeps still", "never does"])
def test_it_is_looked_at_again_only_where_it_changes_and_not_for_ever(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_a_look: int, seen: list[int]
) -> None:
    looks = end_when_read(parent, of_a_look, monkeypatch)
    with pytest.raises(KernelFault, match="used more than"):
        check(parent, tmp_path, TOO_LITTLE)
    assert [len(ended) for ended in looks] == seen
