"""The digest of a folder's contents: it shows whether a build changed after its builder ended."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from domain.fault import KernelFault
from domain.result import Status
from sandbox.isolation.scratch_dir import FolderTooLarge, walk

MAX_FOLDER_BYTES = 2 << 30
"""Maximum bytes of all files of a build; sparse files count in full, because they are read to their end."""


def permissions(mode: int) -> int:
    """The permission bits of a build's file; without setuid and setgid, which would lend a user's rights."""
    return stat.S_IMODE(mode) & 0o777


def digest(folder: Path) -> bytes:
    """Digest of the name, permissions and content of every file in a folder, and of its folders without content.

    Other entries count by name only. Permissions count because a program that is not executable is another build.
    Raises KernelFault (UNSUPPORTED) for a folder that is too large to read, or that its owner cannot read. Raises
    OSError for any other read error, which is not the kernel's fault.
    """
    folder_digest = hashlib.blake2b(digest_size=32)
    size = 0
    if not folder.is_dir():  # No submission can remove its own folder.
        raise FileNotFoundError(errno.ENOENT, "the folder of a build is gone")
    try:
        contents = sorted(walk(folder), key=lambda entry: entry.path)
    except FolderTooLarge as error:
        raise KernelFault(Status.UNSUPPORTED, f"the build left {error}: write less while it is imported") from error
    for entry in contents:
        try:
            folder_digest.update(os.fsencode(os.path.relpath(entry.path, folder)) + b"\0")
            if entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # An unreachable folder cannot be read, so the build is not cached.
                    folder_digest.update(b"%03o" % permissions(entry.stat(follow_symlinks=False).st_mode))
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                folder_digest.update(b"%03o" % permissions(status.st_mode))
                size += status.st_size
                if size > MAX_FOLDER_BYTES:
                    raise KernelFault(
                        Status.UNSUPPORTED,
                        f"the build left more than {MAX_FOLDER_BYTES >> 30} GiB in its folder: write less while the "
                        "source is imported",
                    )
                folder_digest.update(_content(entry.path))
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG and not _is_closed(Path(entry.path), folder):
                raise
            message = "the build left a file that cannot be read: shorten its path, or make it readable to its owner"
            raise KernelFault(Status.UNSUPPORTED, message) from error
    return folder_digest.digest()


def _is_closed(path: Path, folder: Path) -> bool:
    """Whether the modes of the file, or of the folders above it, keep its owner from reading it."""
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
