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
MOVED_IN = "job"
"""The name, in a runner's folder, of what was built."""


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


def shared_bytes(user: int) -> int:
    """What files of that user take in shared memory."""
    return sum(found.st_blocks * 512 for _, found in _shared(user))


def remove(folder: Path) -> None:
    """The folder, and what its user left in shared memory if that is a stranger's own user."""
    if folder.is_symlink():
        return folder.unlink()
    with contextlib.suppress(OSError):
        user = folder.stat().st_uid
        if user != os.geteuid():
            for path, _ in _shared(user):
                with contextlib.suppress(OSError):
                    path.unlink()
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    if folder.exists():
        # Closed folders, or a tree deeper than Python's stack: coreutils knows what to do with both.
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", "--", folder], stderr=subprocess.DEVNULL, check=False)


def hand_over(place: Path, cell: Path) -> None:
    """Moves the folder `place` into the folder `cell`, whose owner's it becomes; its name stays, as a link.

    So absolute names in what was built hold on. Nothing may work in it any more.
    """
    before, after = place.stat().st_uid, cell.stat().st_uid
    place.chmod(0o700)
    inside = place.rename(cell / MOVED_IN)
    place.symlink_to(inside)
    if after != before:
        for path in (str(inside), *(entry.path for entry in entries(inside))):
            if os.lstat(path).st_uid == before:  # Nobody else's, by whatever link it came here.
                os.chown(path, after, after, follow_symlinks=False)


def _shared(user: int) -> Iterator[tuple[Path, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == user and not entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path), status
