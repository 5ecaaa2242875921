"""Host memory of a runner's processes: private, shared, and in files without a name.

A sum over the processes is quick to read, but counts shared pages more than once. Only if that sum is too large does
this module read the kernel's proportional shares, which count every page once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sandbox.isolation import process_tree
from sandbox.isolation.file_access import SHARED_MEMORY

Inode = tuple[int, int]
"""Device and inode number of a file. The number 0 stands for all files of the device."""

_OF_A_PROCESS = ("RssAnon", "RssShmem", "VmSwap", "HugetlbPages")
_SHARES = ("Pss_Anon", "Pss_Shmem", "SwapPss", "Shared_Hugetlb", "Private_Hugetlb")

MAX_EXACT_PROCESSES = 8
"""Maximum number of processes that are read exactly: one with torch takes 15 ms. With more, shared pages count in each.
"""


@dataclass(frozen=True)
class Used:
    """Host memory of the processes, in bytes."""

    bytes: int
    """The figure as read, one process after the other."""
    lower_bound: int
    """The figure less what changed while it was read; 0 if a process has ended.

    Shared pages of a process that ends pass to those read later, although they were counted as its own before.
    """


@dataclass
class SharedWithReferee:
    """Memory that the referee shares with the processes; it does not count as theirs."""

    inodes: set[Inode] = field(default_factory=set)
    bytes: int = 0
    """Size of the file that is shared now."""

    def add(self, descriptor: int) -> None:
        """Exempts another file, instead of the last one."""
        status = os.fstat(descriptor)
        host = stat.S_ISREG(status.st_mode)  # Memory of a GPU is not host memory.
        self.bytes = status.st_size if host else 0
        if host:
            self.inodes.add((status.st_dev, status.st_ino))


def used(pids: Collection[int], *, enough: int, named: Mapping[Inode, int], exempt: SharedWithReferee) -> Used:
    """Measures exactly if the processes may use more than `enough` bytes, are few, and may be inspected.

    `named` has the sizes of their files in shared memory.
    """
    each = {pid: upper_bound(pid) for pid in pids}
    held = _held(pids, named, exempt)
    at_first = sum(each.values()) + sum(held.values())
    if at_first <= enough:
        return Used(at_first, at_first)
    if len(pids) > MAX_EXACT_PROCESSES:
        return Used(at_first - exempt.bytes, at_first - exempt.bytes)
    exact = _exactly(pids, held, exempt)
    return Used(exact, max(0, exact - _changed(each, exact)))


def _changed(before: Mapping[int, int], everything: int) -> int:
    """Sum of the changes of all processes since `before`, in bytes; `everything` if one has ended."""
    now = {pid: upper_bound(pid) for pid in before}
    if any(before[pid] and not now[pid] for pid in before):
        return everything
    return sum(abs(now[pid] - before[pid]) for pid in before)


def upper_bound(pid: int) -> int:
    """Everything that a process maps, shared or not, in bytes; 0 for a process that is gone."""
    try:
        return _sum(f"{_proc_dir(pid)}/status", _OF_A_PROCESS)
    except OSError:
        return 0


def _proc_dir(pid: int) -> str:
    return process_tree.living_thread_dir(pid) or f"/proc/{pid}"


def _exactly(pids: Collection[int], held: dict[Inode, int], exempt: SharedWithReferee) -> int:
    """Counts each page once: mapped pages by the kernel's shares, and the part of files that nobody maps."""
    total = unseen = 0
    mapped: dict[Inode, int] = defaultdict(int)
    for pid in pids:
        try:
            total += _sum(f"{_proc_dir(pid)}/smaps_rollup", _SHARES)
            for (device, number), share in mapped_files(pid):
                mapped[device, number] += share
                mapped[device, 0] += share
        except OSError:
            if at_first := upper_bound(pid):
                total += at_first
                unseen = exempt.bytes  # It contains the shared memory at least once.
    total -= sum(mapped[inode] for inode in exempt.inodes)
    total += sum(max(0, size - mapped[inode]) for inode, size in held.items())
    return max(0, total - unseen)


def mapped_files(pid: int) -> Iterator[tuple[Inode, int]]:
    """The process's share of each file that it maps, without its private copies of pages."""
    inode, share = (0, 0), 0
    with open(f"{_proc_dir(pid)}/smaps", encoding="utf-8", errors="replace") as mappings:
        for line in mappings:
            if line.startswith("Pss:"):
                share = _kib(line)
            elif line.startswith("Anonymous:"):
                if inode[1]:
                    yield inode, max(0, share - _kib(line))
            elif not line[0].isupper():
                device, number = line.split(maxsplit=5)[3:5]
                major, minor = (int(part, 16) for part in device.split(":"))
                inode = (os.makedev(major, minor), int(number))


def _held(pids: Collection[int], named: Mapping[Inode, int], exempt: SharedWithReferee) -> dict[Inode, int]:
    """Sizes of their memory files, mapped or not: files without a name, and a /dev/shm of their own.

    Omits processes that the worker may not inspect.
    """
    held = dict(named)
    own = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if shared := _own_shared_memory(pid):
                own.add(shared[0][0])
                held[shared[0]] = shared[1]
        with contextlib.suppress(OSError), os.scandir(f"{_proc_dir(pid)}/fd") as opened:
            for entry in opened:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev not in own:
                        held[status.st_dev, status.st_ino] = status.st_blocks * 512
    return {inode: size for inode, size in held.items() if inode not in exempt.inodes}


def _own_shared_memory(pid: int) -> tuple[Inode, int] | None:
    """Size of its whole /dev/shm if that is not the worker's; else None. Raises OSError."""
    place = f"{_proc_dir(pid)}/root{SHARED_MEMORY}"
    device = os.stat(place).st_dev
    if device == os.stat(SHARED_MEMORY).st_dev:
        return None
    volume = os.statvfs(place)
    return (device, 0), (volume.f_blocks - volume.f_bfree) * volume.f_frsize


def _sum(place: str, names: tuple[str, ...]) -> int:
    """The sum of those fields. Raises OSError, also if the kernel lacks the first or the process has ended."""
    with open(place, encoding="utf-8", errors="replace") as lines:
        sizes = {line.partition(":")[0]: _kib(line) for line in lines if line.partition(":")[0] in names}
    if names[0] not in sizes:
        raise OSError(errno.ENODATA, f"{place} has no {names[0]}")
    return sum(sizes.values())


def _kib(line: str) -> int:
    return int(line.split()[1]) << 10
