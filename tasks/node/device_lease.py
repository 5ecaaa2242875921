"""The lease of a device: a file lock that lets one job at a time use it, released by the kernel if its holder dies.

It covers all services of a user with the same `lease_dir`. They share a folder there, which is never removed, so that
no other user can take its name. Each queue has an empty file in it. The process that locks the file's first byte holds
the device. Each waiter locks a later byte, its ticket: the byte's offset is the time of arrival in ns.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from domain.fault import JobCancelled
from domain.settings import settings
from tasks.node.byte_lock import find_locked, try_lock, unlock
from tasks.node.private_dir import opened_private

SETTING = "LEASE_DIR"
NEXT_POLL_S = 0.002
POLL_S = 0.02
"""Poll intervals in s: the next waiter polls often, because the device idles meanwhile; the others poll rarely."""
HELD = 0
"""The byte of a queue's file that its holder locks."""
LAST = 2**63 - 1
"""The largest offset of a file."""


def device_lease(device: str, cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
    """Hold the device inside the block; waiters are served in order of arrival. Raises JobCancelled while waiting.

    The queue in Redis already began urgent and short jobs first. Children that are forked without exec would share the
    lock, so start them with exec. Raises UnsafeFolder if the folder belongs to another user.
    """
    return _in_order_of_arrival(device, cancelled)


def quiet(device: str, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> AbstractContextManager[None]:
    """Block context creation on the device inside the block: it would add milliseconds to the holder's windows.

    A job holds it during its windows, and the runner pool while it creates contexts. Never wait for a lease inside it.
    Waiters that arrive within `queue_offset_s` are served before this one.
    """
    return _in_order_of_arrival(_quiet(device), cancelled, queue_offset_s)


def stays_free(device: str, seconds: float) -> bool:
    """Whether for that many seconds no process holds the device, waits for it, or creates contexts on it.

    Returns False as soon as one does.
    """
    until = time.monotonic() + seconds
    files = []
    try:
        for queue in (device, _quiet(device)):
            files.append(_open(queue))
        while all(find_locked(file, HELD, LAST) is None for file in files):
            if time.monotonic() >= until:
                return True
            time.sleep(NEXT_POLL_S)
        return False
    finally:
        for file in files:
            os.close(file)


def create_folder() -> None:
    """Creates the folder of the leases. Raises OSError, and UnsafeFolder if another user could change the folder."""
    os.close(_open_folder())


def open_subfolder(name: str) -> int:
    """A descriptor of a folder beside the queues, which it creates if needed."""
    folder = _open_folder()
    try:
        name = _as_file_name(name)
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def _in_order_of_arrival(queue: str, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> Iterator[None]:
    file = _open(queue)
    try:
        ticket = time.monotonic_ns() + int(queue_offset_s * 1e9)
        while not try_lock(file, ticket):  # Another waiter arrived in the same nanosecond.
            ticket += 1
        while (others_first := find_locked(file, HELD + 1, ticket) is not None) or not try_lock(file, HELD):
            if cancelled():
                raise JobCancelled(f"cancelled while waiting for {queue}")
            time.sleep(POLL_S if others_first else NEXT_POLL_S)
        unlock(file, ticket)  # The next waiter sees that no ticket is before its own.
        yield
    finally:
        os.close(file)


def _quiet(device: str) -> str:
    return f"{device}-quiet"


def _open(queue: str) -> int:
    """A descriptor of the queue's file, which it creates if needed."""
    folder = _open_folder()
    try:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(_as_file_name(queue), flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    os.utime(file)  # Services that clean folders for temporary files remove what is old.
    return file


def _as_file_name(name: str) -> str:
    return re.sub(r"[^\w-]", "_", name)


def _open_folder() -> int:
    folder = settings().lease_dir / f"kernel-eval-leases-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    return opened_private(folder, SETTING)
