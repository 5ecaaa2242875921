"""One job at a time on a device: a lock between a host's processes that the kernel releases when its holder dies.

It holds between all services of a user that have the same `lease_dir`. They meet in one folder there, which stays, so
that no other user can take its name; a holder that is killed leaves an empty file inside until the next `tidy`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from domain.fault import InfrastructureFault, JobCancelled
from domain.settings import settings
from tasks.node.private_dir import opened_private

SETTING = "LEASE_DIR"
LOCKED_S = 30.0
"""The folder is locked for milliseconds; whoever has it for longer is stopped, or is no lease of this service."""
NEXT_POLL_S = 0.002
POLL_S = 0.02
"""The first in line looks often, because the device idles meanwhile; the others need not."""

log = logging.getLogger(__name__)


@contextmanager
def device_lease(device: str, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> Iterator[None]:
    """Hold the device inside the block, served in the order of arrival; JobCancelled when cancelled while waiting.

    Who `queue_offset_s` counts as having come so much later, or earlier where it is negative; nobody is put before the
    holder.
    Each arrival draws a ticket, a file that it keeps locked, and the first ticket that is still locked has the device.
    Children that are forked without exec would share the lock: start them with exec. Raises InfrastructureFault where
    the folder is another user's, or locked for LOCKED_S.
    """
    folder, line = _folder(), _line(device)
    ticket, name = _draw_ticket(folder, line, int(queue_offset_s * 1e9), cancelled)
    try:
        while (ahead := _ahead(folder, line, name)) > 0 or (held := _take(folder, line, name, cancelled)) is None:
            if cancelled():
                raise JobCancelled(f"cancelled while waiting for {device}")
            time.sleep(NEXT_POLL_S if ahead <= 1 else POLL_S)
        name = held
        yield
    finally:
        (folder / name).unlink(missing_ok=True)
        os.close(ticket)
        try:
            tidy()
        except (InfrastructureFault, OSError) as error:  # The job is over, and the next lease finds it out.
            log.warning("what the dead have left in line stays for now: %s", error)


def quiet(device: str, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> AbstractContextManager[None]:
    """Inside, nobody else makes a context on the device: that would cost the holder's windows milliseconds.

    Held for a job's windows, and by whoever makes contexts ahead of its own lease; nobody waits for a lease inside.
    `queue_offset_s` as of a lease.
    """
    return device_lease(_quiet(device), cancelled, queue_offset_s)


def stays_free(device: str, seconds: float) -> bool:
    """Whether nobody holds the device, waits for it, or makes contexts on it, from now on for so long.

    False as soon as somebody does.
    """
    until = time.monotonic() + seconds
    while not _wanted(device):
        if time.monotonic() >= until:
            return True
        time.sleep(NEXT_POLL_S)
    return False


def tidy() -> None:
    """Clears away what the dead have left. Every lease ends so. Raises InfrastructureFault."""
    folder = _folder()
    with _locked(folder):
        for other in os.listdir(folder):
            _alive(folder / other)


def check_folder() -> None:
    """Makes the folder in which jobs queue. Raises UnsafeFolder where another user may change it, and OSError."""
    with _locked(_folder()):
        pass


def _folder() -> Path:
    return settings().lease_dir / f"kernel-eval-leases-{os.getuid()}"


def _quiet(device: str) -> str:
    return f"{device}-quiet"


def _line(device: str) -> str:
    """What the tickets of its line begin with."""
    return re.sub(r"[^\w-]", "_", device)


def _wanted(device: str) -> bool:
    folder = _folder()
    try:
        tickets = [ticket for line in (device, _quiet(device)) for ticket in _tickets(folder, _line(line))]
        return any(_alive(folder / ticket) for ticket in tickets)
    except FileNotFoundError:  # The last one who was in a line has cleared it away.
        return False


def _ahead(folder: Path, line: str, name: str) -> int:
    """How many living tickets go before that one."""
    return sum(_alive(folder / other) for other in _tickets(folder, line) if other < name)


def _take(folder: Path, line: str, name: str, cancelled: Callable[[], bool]) -> str | None:
    """That ticket's name as the holder's, none later than now, so that others may still be put before each other.

    None where it is not the first. Looked at while nobody draws one: who is first then stays so, as none is put before.
    """
    with _locked(folder, cancelled):
        if _ahead(folder, line, name) > 0:
            return None
        held = f"{line}.{min(_place(name), time.monotonic_ns()):020d}"
        (folder / name).rename(folder / held)
        return held


def _draw_ticket(folder: Path, line: str, yields_ns: int, cancelled: Callable[[], bool]) -> tuple[int, str]:
    # Locked under a name that nobody counts, and only then given its place: in the line, an unlocked ticket is a dead
    # one. Places are given under the folder's lock, never twice and never before the first one's, who may have the
    # device: so it has one holder, and nobody is taken for a dead one.
    with _locked(folder, cancelled):
        draft = folder / f".{uuid4().hex}"
        ticket = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(ticket, fcntl.LOCK_EX)
            waiting = sorted(_tickets(folder, line))
            first = next((_place(other) for other in waiting if _alive(folder / other)), 0)
            place, taken = max(time.monotonic_ns() + yields_ns, first + 1), {_place(other) for other in waiting}
            while place in taken:
                place += 1
            name = f"{line}.{place:020d}"
            draft.rename(folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            os.close(ticket)
            raise
    return ticket, name


@contextmanager
def _locked(folder: Path, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Inside, the folder is there and this user's, and nobody else draws a ticket."""
    until = time.monotonic() + LOCKED_S
    while (lock := _lock_of(folder, cancelled, until)) is None:
        continue
    try:
        yield
    finally:
        os.close(lock)


def _lock_of(folder: Path, cancelled: Callable[[], bool], until: float) -> int | None:
    """The folder itself, locked; None when somebody removed it before we had it."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    try:
        lock = opened_private(folder, SETTING)
    except FileNotFoundError:
        return None
    try:
        while not _is_locked_now(lock):
            if cancelled():
                raise JobCancelled("cancelled while waiting for a place in line")
            if time.monotonic() > until:
                raise InfrastructureFault(
                    f"{folder} has been locked for {LOCKED_S:.0f} s: end the process that holds it"
                )
            time.sleep(NEXT_POLL_S)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), folder.lstat()):
                return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _is_locked_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _place(ticket: str) -> int:
    return int(ticket.rpartition(".")[2])


def _tickets(folder: Path, line: str) -> list[str]:
    return [entry for entry in os.listdir(folder) if entry.startswith(f"{line}.")]


def _alive(path: Path) -> bool:
    """Whether the file is locked by its owner; one that is not is removed."""
    try:
        other = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
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
