"""One job at a time on a device: a lock between a host's processes that the kernel releases when its holder dies.

It holds between all services of a user that have the same `lease_dir`. They meet in one folder there, which goes with
the last lease; a holder that is killed leaves it, with an empty file inside, until the next `tidy`.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
    folder, line = _folder(), re.sub(r"[^\w-]", "_", device)
    ticket, name = _draw_ticket(folder, line)
    try:
        while (ahead := sum(_alive(folder / other) for other in _tickets(folder, line) if other < name)) > 0:
            if cancelled():
                raise JobCancelled(f"cancelled while waiting for {device}")
            time.sleep(NEXT_POLL_S if ahead == 1 else POLL_S)
        yield
    finally:
        (folder / name).unlink(missing_ok=True)
        os.close(ticket)
        tidy()


def quiet(device: str, cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
    """Inside, nobody else makes a context on the device: that would cost the holder's windows milliseconds.

    Held for a job's windows, and by whoever makes contexts ahead of its own lease; nobody waits for a lease inside.
    """
    return device_lease(f"{device}-quiet", cancelled)


def tidy() -> None:
    """Clears away what the dead have left, and the folder with it unless somebody is in line. Every lease ends so."""
    folder = _folder()
    with _locked(folder):
        if not any([_alive(folder / other) for other in os.listdir(folder)]):
            folder.rmdir()


def _folder() -> Path:
    return settings().lease_dir / f"kernel-eval-leases-{os.getuid()}"


def _draw_ticket(folder: Path, line: str) -> tuple[int, str]:
    # Locked under a name that nobody counts, and only then given its place: in the line, an unlocked ticket is a dead
    # one. Places are given under the folder's lock and never twice, so nobody is overtaken or taken for a dead one.
    with _locked(folder):
        draft = folder / f".{uuid4().hex}"
        ticket = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(ticket, fcntl.LOCK_EX)
            places = [int(other.rpartition(".")[2]) for other in _tickets(folder, line)]
            name = f"{line}.{max(time.monotonic_ns(), 1 + max(places, default=0)):020d}"
            draft.rename(folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            os.close(ticket)
            raise
    return ticket, name


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Inside, the folder is there, and nobody else draws a ticket or removes the folder."""
    while (lock := _lock_of(folder)) is None:
        continue
    try:
        yield
    finally:
        os.close(lock)


def _lock_of(folder: Path) -> int | None:
    """The folder itself, locked; None when its last user removed it before we had it."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(lock), folder.stat()):
            return lock
    os.close(lock)
    return None


def _tickets(folder: Path, line: str) -> list[str]:
    return [entry for entry in os.listdir(folder) if entry.startswith(f"{line}.")]


def _alive(path: Path) -> bool:
    """Whether the file is locked by its owner; one that is not is removed."""
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
