"""Moves a build to another folder than the one it was made in."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status
from sandbox.isolation import uid
from sandbox.isolation.scratch_dir import FolderTooLarge, remove, walk

MAX_BYTES = 1 << 20
_READ_AND_WRITE = stat.S_IRUSR | stat.S_IWUSR


def move(built_in: Path, folder: Path) -> None:
    """Move everything from one private folder into another, and give it to the owner of the latter.

    No process may run in either folder. Raises KernelFault (UNSUPPORTED) for too many entries, too deep a tree or too
    long a path, and InfrastructureFault for any other error.
    """
    try:
        with uid.owned_by_worker(built_in), os.scandir(built_in) as listing:
            for entry in listing:
                remove(folder / entry.name)
                _rename(entry, folder / entry.name)
        relocate(folder, built_in)
        uid.give(folder)
    except FolderTooLarge as error:
        raise KernelFault(Status.UNSUPPORTED, f"the build left {error}: write less while it is imported") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            message = "the build left a path that is too long: nest fewer folders, or shorten their names"
            raise KernelFault(Status.UNSUPPORTED, message) from error
        message = f"the files of a build cannot be moved: {type(error).__name__}: {error.strerror}"
        raise InfrastructureFault(message) from error


def relocate(folder: Path, built_in: Path | str) -> None:
    """Replace the old folder's path in the index files of Triton's cache. Does not follow links.

    Triton keeps these files accessible to their owner: an inaccessible file of such a name is not Triton's, and stays.
    """
    for entry in list(walk(folder)):
        if not (entry.name.startswith("__grp__") and entry.name.endswith(".json")):
            continue
        if not entry.is_file(follow_symlinks=False):
            continue
        status = entry.stat(follow_symlinks=False)
        if status.st_size <= MAX_BYTES and not _READ_AND_WRITE & ~status.st_mode:
            path = Path(entry.path)
            text = path.read_bytes().replace(f"{built_in}/".encode(), f"{folder}/".encode())
            path.write_bytes(text)


def _rename(entry: os.DirEntry[str], place: Path) -> None:
    """Move one entry. A read-only folder is made writable meanwhile, because it could not be moved otherwise."""
    status = entry.stat(follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode)
    read_only = stat.S_ISDIR(status.st_mode) and not mode & stat.S_IWUSR and status.st_uid == os.geteuid()
    if read_only:
        os.chmod(entry.path, mode | stat.S_IWUSR)
    os.rename(entry.path, place)
    if read_only:
        place.chmod(mode)
