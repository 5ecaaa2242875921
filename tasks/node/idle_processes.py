"""Processes of a device's workers that wait for a job, and that any job of the device may end to have their memory.

Each has an empty file, named by pid namespace, pid and start time. Removing the file claims the process, and only one
process can remove it. The owner claims a process before using it, a job that lacks memory before killing it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.isolation import process_tree
from tasks.node.device_lease import open_subfolder

log = logging.getLogger(__name__)

END_S = 2.0
"""Maximum wait for the killed processes, in s. The driver ends one context in 25 to 28 ms, one after the other."""


class IdleProcesses:
    """The idle processes of one device, of all workers that share its lease."""

    def __init__(self, device: str) -> None:
        self._folder = f"{device}-idle"
        self._namespace = os.stat("/proc/self/ns/pid").st_ino

    def offer(self, pid: int) -> None:
        """Lets others end this process, until it is claimed. Does nothing for a process that has ended.

        Without space for the file the process is not on offer, and its owner replaces it once it would use it.
        """
        if (name := self._name(pid)) is None:
            return
        try:
            with self._opened() as folder:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder))
        except OSError as error:
            log.warning("an idle process cannot be offered to jobs that lack memory: %s", error)

    def claim(self, pid: int) -> bool:
        """Takes the offer back; False if another process was faster and ends this one, or if none was made."""
        name = self._name(pid)
        if name is None:
            return False
        with self._opened() as folder:
            return _removed(name, folder)

    def end_all(self) -> int:
        """Kills every process on offer, and waits for their ends; returns how many it killed.

        It kills none of another pid namespace, and none that has the pid of one that has ended.
        """
        with self._opened() as folder:
            here = [name for name in os.listdir(folder) if name.startswith(f"{self._namespace}-")]
            claimed = [name for name in here if _removed(name, folder)]
        killed = [pidfd for name in claimed if (pidfd := self._kill(name)) is not None]
        _wait(killed)
        return len(killed)

    def _kill(self, name: str) -> int | None:
        """Kills the process of that name; returns a pidfd of it, or None if it has ended or may not be killed."""
        pid = int(name.split("-")[1])
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        # Compared after the pidfd is open: from now on it cannot be another process.
        if self._name(pid) == name:
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return pidfd
            except ProcessLookupError:
                pass
            except PermissionError:
                log.warning("this worker may not end the idle process %d of another worker of its device", pid)
        os.close(pidfd)
        return None

    def _name(self, pid: int) -> str | None:
        status = process_tree.status_of(pid)
        return None if status is None else f"{self._namespace}-{pid}-{status.started}"

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = open_subfolder(self._folder)
        try:
            yield folder
        finally:
            os.close(folder)


def _removed(name: str, folder: int) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _wait(pidfds: list[int]) -> None:
    until = time.monotonic() + END_S
    for pidfd in pidfds:
        if not select.select([pidfd], [], [], max(0.0, until - time.monotonic()))[0]:
            log.warning("an idle process has not ended %g s after it was killed", END_S)
        os.close(pidfd)
