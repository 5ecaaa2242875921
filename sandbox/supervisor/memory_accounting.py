"""What a stranger's processes have of the host's memory: private, shared, and in files that have no name.

A sum of what each of them has is quick to read, and counts twice what they share. Only where that is too much is it
looked up page by page: the kernel then gives each process its share of every page that it maps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sandbox.isolation.file_access import SHARED_MEMORY

Inode = tuple[int, int]
"""Of which file: device and number. A number of 0 stands for all files of that device."""

_OF_A_PROCESS = ("RssAnon", "RssShmem", "VmSwap", "HugetlbPages")
_SHARES = ("Pss_Anon", "Pss_Shmem", "SwapPss", "Shared_Hugetlb", "Private_Hugetlb")

LOOKED_INTO = 8
"""So many processes at once: it takes 15 ms for each that has torch. What more of them share counts for each."""


@dataclass(frozen=True)
class Used:
    """What they have, in bytes."""

    bytes: int
    """By the numbers that were read, one process after the other."""
    least: int
    """Less what has changed hands meanwhile, and nothing where a process has ended.

    What that one shared falls to those that are read after it, and was counted as its own before.
    """


@dataclass
class Lent:
    """What the referee has lent to the processes: its memory, not theirs."""

    inodes: set[Inode] = field(default_factory=set)
    bytes: int = 0
    """Of what is lent just now."""

    def add(self, descriptor: int) -> None:
        """Another file, instead of the last."""
        found = os.fstat(descriptor)
        host = stat.S_ISREG(found.st_mode)  # A card's memory is none of the host's.
        self.bytes = found.st_size if host else 0
        if host:
            self.inodes.add((found.st_dev, found.st_ino))


def used(pids: Collection[int], *, enough: int, named: Mapping[Inode, int], lent: Lent) -> Used:
    """Looked up, as far as the system lets us and they are few, where it may be more than `enough`.

    `named` are files of theirs in shared memory, with what they take.
    """
    each = {pid: at_most(pid) for pid in pids}
    held = _held(pids, named, lent)
    most = sum(each.values()) + sum(held.values())
    if most <= enough:
        return Used(most, most)
    if len(pids) > LOOKED_INTO:
        return Used(most - lent.bytes, most - lent.bytes)
    found = _exactly(pids, held, lent)
    return Used(found, max(0, found - _changed(each, found)))


def _changed(before: Mapping[int, int], everything: int) -> int:
    """How much more or less each of them has than before; everything where one has ended."""
    now = {pid: at_most(pid) for pid in before}
    if any(before[pid] and not now[pid] for pid in before):
        return everything
    return sum(abs(now[pid] - before[pid]) for pid in before)


def at_most(pid: int) -> int:
    """What it maps, shared or not, whoever else has it; 0 for one that is gone."""
    try:
        return _sum(f"{_place(pid)}/status", _OF_A_PROCESS)
    except OSError:
        return 0


def _place(pid: int) -> str:
    """Where a thread of it tells of its memory: the first one, unless that has ended and left the others behind."""
    with contextlib.suppress(OSError):
        for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task")), key=lambda thread: thread != pid):
            place = f"/proc/{pid}/task/{thread}"
            with contextlib.suppress(OSError):
                _sum(f"{place}/status", _OF_A_PROCESS)
                return place
    return f"/proc/{pid}"


def _exactly(pids: Collection[int], held: dict[Inode, int], lent: Lent) -> int:
    """Each page once: mapped pages by their shares, and of files what nobody maps."""
    total = unseen = 0
    mapped: dict[Inode, int] = defaultdict(int)
    for pid in pids:
        try:
            total += _sum(f"{_place(pid)}/smaps_rollup", _SHARES)
            for (device, number), share in _mapped(pid):
                mapped[device, number] += share
                mapped[device, 0] += share
        except OSError:
            if most := at_most(pid):
                total += most
                unseen = lent.bytes  # In there, once at least.
    total -= sum(mapped[inode] for inode in lent.inodes)
    total += sum(max(0, size - mapped[inode]) for inode, size in held.items())
    return max(0, total - unseen)


def _mapped(pid: int) -> Iterator[tuple[Inode, int]]:
    """Its share of each file that it maps, without what it has changed for itself."""
    inode, share = (0, 0), 0
    with open(f"{_place(pid)}/smaps", encoding="utf-8", errors="replace") as mappings:
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


def _held(pids: Collection[int], named: Mapping[Inode, int], lent: Lent) -> dict[Inode, int]:
    """What they have in files of memory, mapped or not: those without a name, and what lies in a /dev/shm of their own.

    Nothing of processes that we may not look into.
    """
    held = dict(named)
    own = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if shared := _own_shared_memory(pid):
                own.add(shared[0][0])
                held[shared[0]] = shared[1]
        with contextlib.suppress(OSError), os.scandir(f"{_place(pid)}/fd") as opened:
            for entry in opened:
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev not in own:
                        held[found.st_dev, found.st_ino] = found.st_blocks * 512
    return {inode: size for inode, size in held.items() if inode not in lent.inodes}


def _own_shared_memory(pid: int) -> tuple[Inode, int] | None:
    """All of its /dev/shm, where that is another than ours. Raises OSError."""
    place = f"{_place(pid)}/root{SHARED_MEMORY}"
    device = os.stat(place).st_dev
    if device == os.stat(SHARED_MEMORY).st_dev:
        return None
    found = os.statvfs(place)
    return (device, 0), (found.f_blocks - found.f_bfree) * found.f_frsize


def _sum(place: str, names: tuple[str, ...]) -> int:
    """Raises OSError, also where the first of the names is not there: an older kernel, or a process that has ended."""
    with open(place, encoding="utf-8", errors="replace") as lines:
        found = {line.partition(":")[0]: _kib(line) for line in lines if line.partition(":")[0] in names}
    if names[0] not in found:
        raise OSError(errno.ENODATA, f"{place} has no {names[0]}")
    return sum(found.values())


def _kib(line: str) -> int:
    return int(line.split()[1]) << 10
