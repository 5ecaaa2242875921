"""Files that a submission's processes have removed but still hold: they take disk space without a name.

The kernel gives the size of open files. It gives the size of files that are only mapped to workers with
CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN alone. A socket's queue shows only the number of its descriptors. The limit on
the size of one file bounds files of unknown size, and these count only as far as the disk has lost space. `Usage`
searches for any only if it has lost enough, so what others free meanwhile hides as much (docs/limitations.md, S7).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.isolation import process_tree
from sandbox.isolation.namespaces import TEMPORARY
from sandbox.isolation.rlimits import MAX_FILE_BYTES

_REMOVED = b" (deleted)"
"""The end of a line of /proc/PID/maps whose file has no name any more."""
_IN_FLIGHT = re.compile(rb"^scm_fds:\s*([1-9])", re.MULTILINE)
"""The number of descriptors in a socket's queue, in its fdinfo (Linux 5.12). They may be sockets with further ones."""


@dataclass
class Removed:
    """`sizes`: bytes on the disk by inode. `unsized`: inodes of files whose size the kernel does not give."""

    sizes: dict[int, int] = field(default_factory=dict)
    unsized: set[int] = field(default_factory=set)
    out_of_sight: bool = False
    """Whether any number of files may be held: in a socket's queue, or by a process that cannot be inspected."""

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def max_unsized_bytes(self) -> float:
        """Maximum disk space of the files of unknown size, in bytes."""
        return math.inf if self.out_of_sight else float(len(self.unsized - self.sizes.keys()) * MAX_FILE_BYTES)


def held(pids: Collection[int], folder: Path) -> Removed:
    """The removed files that these processes hold on the volume of the folder."""
    removed = Removed()
    device = folder.stat().st_dev
    for pid in pids:
        place = process_tree.living_thread_dir(pid)
        if place is None:
            continue
        try:
            _opened(place, device, removed)
            _mapped(place, folder, removed)
        except PermissionError:
            # The kernel gives the folders of a process to root once it ends.
            removed.out_of_sight |= process_tree.living_thread_dir(pid) is not None
        except OSError:
            pass  # It has ended.
    return removed


def _opened(place: str, device: int, removed: Removed) -> None:
    with os.scandir(f"{place}/fd") as descriptors:
        for entry in descriptors:
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                    removed.sizes[status.st_ino] = status.st_blocks * 512
                elif stat.S_ISSOCK(status.st_mode):
                    information = Path(f"{place}/fdinfo/{entry.name}").read_bytes()
                    removed.out_of_sight |= _IN_FLIGHT.search(information) is not None


def _mapped(place: str, folder: Path, removed: Removed) -> None:
    # Only in these folders: libraries that an upgrade has replaced are mapped without a name too.
    folders = tuple(os.fsencode(parent) + b"/" for parent in (folder.resolve(), TEMPORARY))
    lines = Path(f"{place}/maps").read_bytes()
    if _REMOVED not in lines:
        return
    for line in lines.split(b"\n"):  # A name may contain any other character.
        if not line.endswith(_REMOVED):
            continue
        addresses, _, _, _, inode, name = line.split(maxsplit=5)
        number = int(inode)
        if number in removed.sizes or not name.startswith(folders):
            continue
        try:
            first, _, end = addresses.partition(b"-")
            status = os.stat(f"{place}/map_files/{int(first, 16):x}-{int(end, 16):x}")
        except PermissionError:
            removed.unsized.add(number)
        except FileNotFoundError:
            pass  # Unmapped meanwhile.
        else:
            if not status.st_nlink:
                removed.sizes[number] = status.st_blocks * 512
