"""The lease of a device: a file lock that lets one job at a time use it, released by the kernel if its holder dies.

It covers all services of a user with the same `lease_dir`. They share a folder there, which is never removed, so that
no other user can take its name. A holder that is killed leaves an empty file in it until the next `tidy`.
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
MAX_LOCKED_S = 30.0
"""Maximum seconds that the folder may be locked. A lease locks it for milliseconds, so a longer lock is an error."""
NEXT_POLL_S = 0.002
POLL_S = 0.02
"""Poll intervals in s: the next waiter polls often, because the device idles meanwhile; the others poll rarely."""

log = logging.getLogger(__name__)


@contextmanager
def device_lease(device: str, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> Iterator[None]:
    """Hold the device inside the block; waiters are served in order of arrival. Raises JobCancelled while waiting.

    `queue_offset_s` shifts the arrival: positive is later, negative earlier, but never before the current holder.
    Each arrival draws a ticket, a file that it keeps locked; the first ticket that is still locked has the device.
    Children that are forked without exec would share the lock, so start them with exec. Raises InfrastructureFault if
    the folder belongs to another user, or stays locked for MAX_LOCKED_S.
    """
    folder, queue = _folder(), _queue_prefix(device)
    ticket, name = _draw_ticket(folder, queue, int(queue_offset_s * 1e9), cancelled)
    try:
        while (waiting := _tickets_before(folder, queue, name)) > 0 or (
            holder_name := _become_holder(folder, queue, name, cancelled)
        ) is None:
            if cancelled():
                raise JobCancelled(f"cancelled while waiting for {device}")
            time.sleep(NEXT_POLL_S if waiting <= 1 else POLL_S)
        name = holder_name
        yield
    finally:
        (folder / name).unlink(missing_ok=True)
        os.close(ticket)
        try:
            tidy()
        except (InfrastructureFault, OSError) as error:  # The job is over; the next lease reports the problem again.
            log.warning("tickets of dead processes could not be removed: %s", error)


def quiet(device: str, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> AbstractContextManager[None]:
    """Block context creation on the device inside the block: it would add milliseconds to the holder's windows.

    A job holds it during its windows, and the runner pool while it creates contexts. Never wait for a lease inside it.
    `queue_offset_s` as in `device_lease`.
    """
    return device_lease(_quiet(device), cancelled, queue_offset_s)


def stays_free(device: str, seconds: float) -> bool:
    """Whether for that many seconds no process holds the device, waits for it, or creates contexts on it.

    Returns False as soon as one does.
    """
    until = time.monotonic() + seconds
    while not _in_use(device):
        if time.monotonic() >= until:
            return True
        time.sleep(NEXT_POLL_S)
    return False


def tidy() -> None:
    """Remove the tickets of dead processes; every lease ends with it. Raises InfrastructureFault."""
    folder = _folder()
    with _locked(folder):
        for other in os.listdir(folder):
            _alive(folder / other)


def create_folder() -> None:
    """Creates the folder of the leases. Raises OSError, and UnsafeFolder if another user could change the folder."""
    with _locked(_folder()):
        pass


def _folder() -> Path:
    return settings().lease_dir / f"kernel-eval-leases-{os.getuid()}"


def _quiet(device: str) -> str:
    return f"{device}-quiet"


def _queue_prefix(device: str) -> str:
    """Prefix of the tickets of a device's queue."""
    return re.sub(r"[^\w-]", "_", device)


def _in_use(device: str) -> bool:
    folder = _folder()
    try:
        tickets = [ticket for queue in (device, _quiet(device)) for ticket in _tickets(folder, _queue_prefix(queue))]
        return any(_alive(folder / ticket) for ticket in tickets)
    except FileNotFoundError:  # Another process removed the folder.
        return False


def _tickets_before(folder: Path, queue: str, name: str) -> int:
    """The number of live tickets before that one."""
    return sum(_alive(folder / other) for other in _tickets(folder, queue) if other < name)


def _become_holder(folder: Path, queue: str, name: str, cancelled: Callable[[], bool]) -> str | None:
    """Rename the ticket to the holder's position, which is at most the current time; returns the new name.

    Later arrivals can then still be ordered among each other. None if the ticket is not the first. The folder's lock
    keeps it the first, because nobody draws a ticket meanwhile, and none is placed before the holder.
    """
    with _locked(folder, cancelled):
        if _tickets_before(folder, queue, name) > 0:
            return None
        holder_name = f"{queue}.{min(_position(name), time.monotonic_ns()):020d}"
        (folder / name).rename(folder / holder_name)
        return holder_name


def _draw_ticket(folder: Path, queue: str, queue_offset_ns: int, cancelled: Callable[[], bool]) -> tuple[int, str]:
    # The ticket is locked under a draft name before it enters the queue, where an unlocked ticket counts as dead. The
    # folder's lock makes positions unique, and later than the first ticket, which may hold the device. Hence the device
    # has one holder, and no live ticket is taken for a dead one.
    with _locked(folder, cancelled):
        draft = folder / f".{uuid4().hex}"
        ticket = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(ticket, fcntl.LOCK_EX)
            waiting = sorted(_tickets(folder, queue))
            first = next((_position(other) for other in waiting if _alive(folder / other)), 0)
            position, used = (
                max(time.monotonic_ns() + queue_offset_ns, first + 1),
                {_position(other) for other in waiting},
            )
            while position in used:
                position += 1
            name = f"{queue}.{position:020d}"
            draft.rename(folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            os.close(ticket)
            raise
    return ticket, name


@contextmanager
def _locked(folder: Path, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Inside the block the folder exists, belongs to this user, and no other process draws a ticket."""
    until = time.monotonic() + MAX_LOCKED_S
    while (lock := _lock_of(folder, cancelled, until)) is None:
        continue
    try:
        yield
    finally:
        os.close(lock)


def _lock_of(folder: Path, cancelled: Callable[[], bool], until: float) -> int | None:
    """A locked descriptor of the folder; None if another process removed the folder first."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    try:
        lock = opened_private(folder, SETTING)
    except FileNotFoundError:
        return None
    try:
        while not _is_locked_now(lock):
            if cancelled():
                raise JobCancelled("cancelled while waiting to enter the device's queue")
            if time.monotonic() > until:
                raise InfrastructureFault(
                    f"{folder} has been locked for {MAX_LOCKED_S:.0f} s: end the process that holds it"
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


def _position(ticket: str) -> int:
    return int(ticket.rpartition(".")[2])


def _tickets(folder: Path, queue: str) -> list[str]:
    return [entry for entry in os.listdir(folder) if entry.startswith(f"{queue}.")]


def _alive(path: Path) -> bool:
    """Whether the file's owner still locks it; removes the file otherwise."""
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
