"""Watches the host resources of a runner from outside: memory, processes, disk.

The kernel's own limits usually apply first (`sandbox.isolation.rlimits`, `sandbox.isolation.cgroup`); this watch holds
where they are
missing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from domain.fault import KernelFault
from domain.result import Status
from sandbox.isolation import process_tree, scratch_dir, uid
from sandbox.isolation.rlimits import MAX_PROCESSES
from sandbox.supervisor import machine_faults, memory_accounting, removed_files
from sandbox.supervisor.memory_accounting import SharedWithReferee, Used

FAMILY_EVERY_S = 0.1
FOLDER_EVERY_S = 1.0
AT_LEAST_EVERY_S = 3.0

UNSETTLED_S = 3.0
"""Maximum time that processes may seem over the memory limit while they change during every reading, in s.

Seven processes that shared 200 MiB and ended meanwhile seemed to have twice as much for 1.4 s, on a host with twice its
load (2026-11-27, two cores). Processes that never settle for longer are taken to be over the limit.
"""


class Usage:
    """Resources of one runner, its descendants and its folder. `user` is the folder's owner, as whom it runs."""

    def __init__(self, pid: int, folder: Path, memory_limit: int) -> None:
        self.user = folder.stat().st_uid
        self._pid = pid
        self._folder = folder
        self._memory_limit = memory_limit
        self.exempt = SharedWithReferee()
        self._seems_too_much_since: float | None = None
        """Time of the first of the last readings, all of them above the limit and unsettled."""
        self._disk_was_full = False
        self._room = scratch_dir.free_bytes(folder)
        """Disk space that others have left, in bytes: free or used by this submission."""
        # A new runner has not used anything yet.
        self._family_at = self._folder_at = time.monotonic()

    def begin(self) -> None:
        """Called before the submission arrives: earlier changes of the disk are not its doing."""
        self._room, self._disk_was_full = scratch_dir.free_bytes(self._folder), False

    def check(self, now: float, *, idle: bool) -> None:
        """Raises KernelFault (OUT_OF_MEMORY) if a limit is exceeded. `now` is from time.monotonic().

        Costs 40 µs. Slower checks run while the runner is silent (`idle`), so that they delay no message. With a runner
        that is never silent, they run every AT_LEAST_EVERY_S. Memory is read every FAMILY_EVERY_S once the runner's own
        upper bound exceeds the limit.
        """
        much = memory_accounting.upper_bound(self._pid) - self.exempt.bytes > self._memory_limit
        soon = idle or much or self._seems_too_much_since is not None
        if now - self._family_at > (FAMILY_EVERY_S if soon else AT_LEAST_EVERY_S):
            if self._has_too_much(now):
                limit = f"{self._memory_limit >> 20} MiB of host memory (the service's RUNNER_MEMORY_MIB)"
                raise _too_much(f"used more than {limit}")
            self._family_at = time.monotonic()  # The check may have taken a while.
        if now - self._folder_at > (FOLDER_EVERY_S if idle else AT_LEAST_EVERY_S):
            self._folder_at = now
            self._check_folder()

    def disk_was_full(self) -> bool:
        """Whether its folder's volume is full, or was at an earlier check."""
        self._disk_was_full = self._disk_was_full or machine_faults.is_full(self._folder)
        return self._disk_was_full

    def filled_disk(self) -> bool:
        """Whether the submission's own files, with or without a name, are large enough to have filled the volume."""
        try:
            named = scratch_dir.used_bytes(self._folder)
        except scratch_dir.FolderTooLarge:
            return True
        return named + self._removed_bytes(self._lost_bytes(named)) > machine_faults.FILLED_BYTES

    def _has_too_much(self, now: float) -> bool:
        """A reading of processes that fork, map or end meanwhile may count their common memory more than once."""
        used = self._used()
        if used.bytes <= self._memory_limit:
            self._seems_too_much_since = None
            return False
        if self._seems_too_much_since is None:
            self._seems_too_much_since = now
        return used.lower_bound > self._memory_limit or now - self._seems_too_much_since > UNSETTLED_S

    def _used(self) -> Used:
        family = process_tree.with_descendants(self._pid)
        if sum(map(process_tree.threads, family)) > MAX_PROCESSES:
            raise _too_much(f"had more than {MAX_PROCESSES} processes and threads")
        try:
            named = scratch_dir.shared(self.user) if self.user != os.geteuid() else {}
        except scratch_dir.FolderTooLarge as error:
            raise _too_much(f"left {error}") from error
        with uid.inspecting_as(self.user):
            used = memory_accounting.used(family, enough=self._memory_limit, named=named, exempt=self.exempt)
        # A process that was forked meanwhile takes its part of the shared pages from those read after it alone.
        return Used(used.bytes, 0) if process_tree.with_descendants(self._pid) - family else used

    def _check_folder(self) -> None:
        self.disk_was_full()
        try:
            used = scratch_dir.used_bytes(self._folder)
        except scratch_dir.FolderTooLarge as error:
            raise _too_much(f"left {error}") from error
        if used > scratch_dir.MAX_BYTES:
            raise _too_much(f"wrote more than {scratch_dir.MAX_BYTES >> 30} GiB into its folder")
        lost = self._lost_bytes(used)
        # Searching for them takes milliseconds, so it is done only if the disk has lost enough space.
        if used + lost > scratch_dir.MAX_BYTES and used + self._removed_bytes(lost) > scratch_dir.MAX_BYTES:
            limit = f"{scratch_dir.MAX_BYTES >> 30} GiB of the disk"
            raise _too_much(f"took more than {limit}, with files that it had removed and still held,")

    def _lost_bytes(self, named: int) -> int:
        """The space that the disk has lost since it had most, beside the `named` bytes in the folder."""
        room = scratch_dir.free_bytes(self._folder) + named
        self._room = max(self._room, room)
        return self._room - room

    def _removed_bytes(self, lost: int) -> float:
        """Disk space of files without a name, in bytes.

        Those of unknown size count as far as the disk has `lost` space, because others write to it too.
        """
        with uid.inspecting_as(self.user):
            removed = removed_files.held(process_tree.with_descendants(self._pid), self._folder)
        most = removed.bytes + removed.max_unsized_bytes
        if not most:
            self._room -= lost
        return max(removed.bytes, min(most, lost))


def _too_much(what: str) -> KernelFault:
    return KernelFault(Status.OUT_OF_MEMORY, f"the kernel's process {what} and was stopped")
