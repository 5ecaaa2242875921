"""Measures and removes a submission's folder from outside, whatever the submission made of it."""

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


class FolderTooLarge(Exception):
    """The folder has more entries or levels than the limits allow."""


def walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below the folder, without following links; raises FolderTooLarge.

    Skips entries that cannot be read or have gone meanwhile.
    """
    waiting = [(str(folder), 0)]
    count = 0
    while waiting:
        place, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise FolderTooLarge(f"folders more than {MAX_DEPTH} levels deep")
        with contextlib.suppress(OSError), os.scandir(place) as listing:
            for entry in listing:
                count += 1
                if count > MAX_ENTRIES:
                    raise FolderTooLarge(f"more than {MAX_ENTRIES} files in its folder")
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, depth + 1))


def used_bytes(folder: Path) -> int:
    """Disk space of the folder's files, in bytes; raises FolderTooLarge."""
    used = 0
    for entry in walk(folder):
        with contextlib.suppress(OSError):
            used += entry.stat(follow_symlinks=False).st_blocks * 512
    return used


def newest_files(folder: Path, count: int) -> list[str]:
    """The files that were changed last, by their paths in the folder; few of a folder beyond the limits."""
    changed: list[tuple[float, str]] = []
    with contextlib.suppress(FolderTooLarge):
        for entry in walk(folder):
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    seconds = entry.stat(follow_symlinks=False).st_mtime
                    changed.append((seconds, os.path.relpath(entry.path, folder)))
    return [path for _, path in sorted(changed, reverse=True)[:count]]


def free_bytes(folder: Path) -> int:
    """Free space of the folder's volume, in bytes."""
    volume = os.statvfs(folder)
    return volume.f_bfree * volume.f_frsize


def shared(user: int) -> dict[tuple[int, int], int]:
    """Files of a submission's user in shared memory: bytes by device and inode; raises FolderTooLarge."""
    return {(status.st_dev, status.st_ino): status.st_blocks * 512 + used_bytes(path) for path, status in _shared(user)}


def remove(folder: Path) -> None:
    """Removes the folder, and the shared memory of its owner if that is a submission's own user."""
    with contextlib.suppress(OSError):
        user = folder.stat().st_uid
        if user != os.geteuid():
            for path, _ in _shared(user):
                _remove(path)
    _remove(folder)


def empty(folder: Path) -> None:
    with os.scandir(folder) as listing:
        for entry in listing:
            _remove(Path(entry.path))


def _remove(place: Path) -> None:
    with contextlib.suppress(OSError, RecursionError):
        place.unlink() if place.is_symlink() or not place.is_dir() else shutil.rmtree(place)
    if place.exists():
        # Folders without permissions, or a tree deeper than Python's stack: coreutils handles both.
        name: list[str | Path] = ["--", place]
        commands: list[list[str | Path]] = [["chmod", "-R", "u+rwX", *name], ["rm", "-rf", "--one-file-system", *name]]
        if os.geteuid() == 0:
            # Without CAP_FOWNER, only the owner may empty a folder with the sticky bit. Changes folders alone: a file
            # may have another name elsewhere, where it keeps its owner.
            to_root = ["-execdir", "chown", "--no-dereference", "0:0", "{}", "+"]
            commands.insert(0, ["find", place, "-xdev", "-type", "d", *to_root])
        for command in commands:
            subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _shared(user: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Includes folders: without Landlock a submission can make them there."""
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as listing:
        for entry in listing:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == user:
                    yield Path(entry.path), status
