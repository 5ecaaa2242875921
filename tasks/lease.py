"""One job at a time on a device: a lock between a node's processes that the kernel releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from domain.fault import JobCancelled
from domain.settings import settings

NEXT_POLL_S = 0.002
POLL_S = 0.02
"""The first in line looks often, because the device idles meanwhile; the others need not."""


@contextmanager
def device_lease(device: str, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the device inside the block, served in the order of arrival; JobCancelled when cancelled while waiting.

    Each arrival draws a ticket, a file that it keeps locked, and the oldest ticket that is still locked has the device.
    Children that are forked without exec would share the lock: start them with exec.
    """
    line = _line_of(device)
    ticket, name = _draw_ticket(line)
    try:
        while (ahead := _ahead_of(line, name)) > 0:
            if cancelled():
                raise JobCancelled(f"cancelled while waiting for {device}")
            time.sleep(NEXT_POLL_S if ahead == 1 else POLL_S)
        yield
    finally:
        (line / name).unlink(missing_ok=True)
        os.close(ticket)


def _line_of(device: str) -> Path:
    line = settings().state_dir / "lease" / re.sub(r"[^\w-]", "_", device)
    line.mkdir(parents=True, exist_ok=True, mode=0o700)
    return line


def _draw_ticket(line: Path) -> tuple[int, str]:
    # Locked under a name that nobody counts, and only then given its place: in the line, an unlocked ticket is a dead
    # one. Places are given under the line's own lock and never twice, so nobody is overtaken or taken for a dead one.
    draft = line / f".{uuid4().hex}"
    ticket = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(ticket, fcntl.LOCK_EX)
        with (line / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            place = max(time.monotonic_ns(), 1 + max(map(int, _tickets(line)), default=0))
            name = f"{place:020d}"
            draft.rename(line / name)
    except BaseException:
        draft.unlink(missing_ok=True)
        os.close(ticket)
        raise
    return ticket, name


def _ahead_of(line: Path, name: str) -> int:
    """How many living tickets are older, clearing away the dead."""
    return sum(_alive(line / ticket) for ticket in _tickets(line) if ticket < name)


def _tickets(line: Path) -> list[str]:
    return [entry for entry in os.listdir(line) if not entry.startswith(".")]


def _alive(path: Path) -> bool:
    try:
        other = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with suppress(FileNotFoundError):
            path.unlink()
        return False
    finally:
        os.close(other)
