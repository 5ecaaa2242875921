"""The digest of what is in a folder: what a build has left, and whether it is still that."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from domain.fault import KernelFault
from domain.result import Status
from sandbox.isolation.scratch_dir import FolderTooLarge, entries

MAX_FOLDER_BYTES = 2 << 30
"""Of all files that a build leaves; a file may be long and hold nothing, and is read to its end all the same."""


def permissions(mode: int) -> int:
    """What of a file's mode belongs to a build: who may do what with it, and nothing that lends a user's rights."""
    return stat.S_IMODE(mode) & 0o777


def digest(folder: Path) -> bytes:
    """Of every file in a folder, by name, permissions and content; of folders without content.

    What is neither counts by its name alone. A program that may not be run any more is another build.
    Raises KernelFault (UNSUPPORTED) for a folder that is too large to be read, or has what its maker has closed, and
    OSError for whatever else keeps the worker from reading it: that is not the kernel's fault.
    """
    found = hashlib.blake2b(digest_size=32)
    size = 0
    if not folder.is_dir():  # No submission can remove its own folder.
        raise FileNotFoundError(errno.ENOENT, "the folder of a build is gone")
    try:
        left = sorted(entries(folder), key=lambda entry: entry.path)
    except FolderTooLarge as error:
        raise KernelFault(Status.UNSUPPORTED, f"the build left {error}: write less while it is imported") from error
    for entry in left:
        try:
            found.update(os.fsencode(os.path.relpath(entry.path, folder)) + b"\0")
            if entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # What no path reaches cannot be read, and then is not kept.
                    found.update(b"%03o" % permissions(entry.stat(follow_symlinks=False).st_mode))
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found.update(b"%03o" % permissions(status.st_mode))
                size += status.st_size
                if size > MAX_FOLDER_BYTES:
                    raise KernelFault(
                        Status.UNSUPPORTED,
                        f"the build left more than {MAX_FOLDER_BYTES >> 30} GiB in its folder: write less while the "
                        "source is imported",
                    )
                found.update(_content(entry.path))
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG and not _is_closed(Path(entry.path), folder):
                raise
            message = "the build left a file that it does not let us read: shorten its path, or let its owner read it"
            raise KernelFault(Status.UNSUPPORTED, message) from error
    return found.digest()


def _is_closed(path: Path, folder: Path) -> bool:
    """Whether the file's maker keeps its owner from reading it, by the modes of the file and of the folders above."""
    names = path.relative_to(folder).parts
    for count in range(len(names)):
        try:
            if not folder.joinpath(*names[:count]).lstat().st_mode & stat.S_IXUSR:
                return True
        except OSError:
            return False
    try:
        return not path.lstat().st_mode & stat.S_IRUSR
    except OSError:
        return False


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, hashlib.blake2b).digest()
