"""Files that a stranger's processes have removed and still hold: they take room on the disk, and no folder lists them.

Whoever has one open shows how large it is. Of one that is only mapped the kernel tells that to a worker with
CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN alone, and of descriptors in a socket's queue their number. What those may hide
is bounded by what a file may have, and is only held against a stranger as far as the disk has lost room (`Usage`).
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

from sandbox.limits import MAX_FILE_BYTES
from sandbox.namespaces import TEMPORARY

_REMOVED = b" (deleted)"
"""At the end of a line of /proc/PID/maps: the file has no name any more."""
_IN_FLIGHT = re.compile(rb"^scm_fds:\s*([1-9])", re.MULTILINE)
"""Of a socket's fdinfo: its queue has descriptors, which may be of sockets with further ones (Linux 5.12)."""


@dataclass
class Removed:
    """What the files take on the disk, by inode, in bytes; and what is held of which no size is told."""

    sizes: dict[int, int] = field(default_factory=dict)
    unsized: set[int] = field(default_factory=set)
    out_of_sight: bool = False
    """Whether any number of files may be held: in a socket's queue, or by a process that cannot be looked into."""

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def hidden_at_most(self) -> float:
        """Bytes beside those."""
        return math.inf if self.out_of_sight else float(len(self.unsized - self.sizes.keys()) * MAX_FILE_BYTES)


def held(pids: Collection[int], folder: Path) -> Removed:
    """By those processes, of the disk on which the folder lies."""
    found = Removed()
    device = folder.stat().st_dev
    for pid in pids:
        try:
            _opened(pid, device, found)
            _mapped(pid, folder, found)
        except PermissionError:
            found.out_of_sight = True
        except OSError:
            pass  # It has ended.
    return found


def _opened(pid: int, device: int, found: Removed) -> None:
    with os.scandir(f"/proc/{pid}/fd") as descriptors:
        for entry in descriptors:
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                    found.sizes[status.st_ino] = status.st_blocks * 512
                elif stat.S_ISSOCK(status.st_mode):
                    information = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_bytes()
                    found.out_of_sight |= _IN_FLIGHT.search(information) is not None


def _mapped(pid: int, folder: Path, found: Removed) -> None:
    # By where they were: libraries that an upgrade has replaced are mapped without a name too, and nobody's doing.
    places = tuple(os.fsencode(place) + b"/" for place in (folder.resolve(), TEMPORARY))
    lines = Path(f"/proc/{pid}/maps").read_bytes()
    if _REMOVED not in lines:
        return
    for line in lines.split(b"\n"):  # A name may hold any other character.
        if not line.endswith(_REMOVED):
            continue
        addresses, _, _, _, inode, name = line.split(maxsplit=5)
        number = int(inode)
        if number in found.sizes or not name.startswith(places):
            continue
        try:
            first, _, end = addresses.partition(b"-")
            status = os.stat(f"/proc/{pid}/map_files/{int(first, 16):x}-{int(end, 16):x}")
        except PermissionError:
            found.unsized.add(number)
        except FileNotFoundError:
            pass  # Unmapped meanwhile.
        else:
            if not status.st_nlink:
                found.sizes[number] = status.st_blocks * 512
