"""A stranger's folder from outside: how much is in it, and how it is removed, whatever was made of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 8 << 30
MAX_ENTRIES = 100_000
MAX_DEPTH = 64
SHARED_MEMORY = Path("/dev/shm")


class TooMuch(Exception):
    """More in the folder than anybody should read."""


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below the folder, links not followed; raises TooMuch for too many entries or too deep a tree.

    What cannot be read, or has gone meanwhile, is left out.
    """
    waiting = [(str(folder), 0)]
    count = 0
    while waiting:
        place, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise TooMuch(f"folders in its folder more than {MAX_DEPTH} deep")
        with contextlib.suppress(OSError), os.scandir(place) as found:
            for entry in found:
                count += 1
                if count > MAX_ENTRIES:
                    raise TooMuch(f"more than {MAX_ENTRIES} files in its folder")
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, depth + 1))


def used_bytes(folder: Path) -> int:
    """What the folder's files take on the disk; raises TooMuch."""
    used = 0
    for entry in entries(folder):
        with contextlib.suppress(OSError):
            used += entry.stat(follow_symlinks=False).st_blocks * 512
    return used


def free_bytes(folder: Path) -> int:
    """What the disk on which the folder lies has left."""
    found = os.statvfs(folder)
    return found.f_bfree * found.f_frsize


def shared(user: int) -> dict[tuple[int, int], int]:
    """What a user of its own has in shared memory: bytes by device and inode; raises TooMuch."""
    return {(found.st_dev, found.st_ino): found.st_blocks * 512 + used_bytes(path) for path, found in _shared(user)}


def remove(folder: Path) -> None:
    """The folder, and what its user left in shared memory if that is a stranger's own user."""
    with contextlib.suppress(OSError):
        user = folder.stat().st_uid
        if user != os.geteuid():
            for path, _ in _shared(user):
                _remove(path)
    _remove(folder)


def _remove(place: Path) -> None:
    with contextlib.suppress(OSError, RecursionError):
        place.unlink() if place.is_symlink() or not place.is_dir() else shutil.rmtree(place)
    if place.exists():
        # Closed folders, or a tree deeper than Python's stack: coreutils knows what to do with both.
        name: list[str | Path] = ["--", place]
        commands: list[list[str | Path]] = [["chmod", "-R", "u+rwX", *name], ["rm", "-rf", "--one-file-system", *name]]
        if os.geteuid() == 0:
            # Only the owner of a folder with the sticky bit may empty it, unless there is CAP_FOWNER. Folders alone: a
            # file may have another name elsewhere, whose owner keeps it.
            to_root = ["-execdir", "chown", "--no-dereference", "0:0", "{}", "+"]
            commands.insert(0, ["find", place, "-xdev", "-type", "d", *to_root])
        for command in commands:
            subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _shared(user: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Folders too: where there is no Landlock, they can be made there."""
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == user:
                    yield Path(entry.path), status
