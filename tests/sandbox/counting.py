"""Processes that count in memory that the test shares: a stopped one does not count."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator

from sandbox.isolation.process_tree import with_descendants
from sandbox.supervisor.process_freezer import freeze

WITHIN_S = 20.0
LOOKS = 20


def moves(counters: mmap.mmap, places: set[int]) -> None:
    """Waits until each of them has counted on."""
    until = time.monotonic() + WITHIN_S
    for place in places:
        seen = counters[place]
        while counters[place] == seen:
            assert time.monotonic() < until, f"{place} does not count"


def still(counters: mmap.mmap) -> bool:
    """Whether none counts while others have their turn on the processors."""
    seen = bytes(counters)
    for _ in range(LOOKS):
        subprocess.run(["true"], check=True)
    return bytes(counters) == seen


@contextlib.contextmanager
def pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    yield descriptor
    os.close(descriptor)


def frozen_by(pid: int, wait: Callable[[], None] | None = None) -> frozenset[int]:
    """`freeze`, of a child of this process that was not waited for."""
    until = time.monotonic() + WITHIN_S

    def in_time() -> None:
        assert time.monotonic() < until, "it does not stop"

    with pidfd(pid) as descriptor:
        return freeze(pid, descriptor, wait or in_time)


def end(process: subprocess.Popen[bytes], members: Iterable[int]) -> None:
    """Kills the process and its descendants; `members` are those that were found, which may be too few."""
    for pid in {*members, *with_descendants(process.pid)} - {process.pid}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
