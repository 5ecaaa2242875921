"""A folder that no other user of the machine can change: a predictable name may have been taken by somebody else."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from domain.fault import InfrastructureFault


class UnsafeFolder(InfrastructureFault):
    """Another user owns the folder or may write into it; the message says which setting names another one."""


def opened_private(folder: Path, setting: str) -> int:
    """A descriptor of the folder, which is this user's own; what its group may write is taken away.

    Raises UnsafeFolder, naming the setting, and FileNotFoundError.
    """
    remedy = f"remove it, or set {setting} to a folder of this worker's user"
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafeFolder(
            f"{folder} is a link, no folder, or closed to this user ({error.strerror}): {remedy}"
        ) from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise UnsafeFolder(f"{folder} belongs to user {status.st_uid} and not to {os.geteuid()}: {remedy}")
        if status.st_mode & stat.S_IWOTH:
            raise UnsafeFolder(f"every user may write into {folder}: {remedy}")
        if status.st_mode & stat.S_IWGRP:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~stat.S_IWGRP)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_private(folder: Path, setting: str) -> None:
    """Makes the folder where it is not there, and checks it. Raises UnsafeFolder, OSError where it cannot be made."""
    # A submission's user has to pass through it, and must not list it.
    with suppress(FileExistsError):  # Whatever it is, it is looked at next.
        folder.mkdir(parents=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    os.close(opened_private(folder, setting))
