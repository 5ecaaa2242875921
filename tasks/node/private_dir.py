"""Folders that no other user of the machine can change: another user may have created one of a predictable name."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from domain.fault import InfrastructureFault


class UnsafeFolder(InfrastructureFault):
    """Another user owns the folder or may write into it; the message names the setting that moves it."""


def opened_private(folder: Path, setting: str) -> int:
    """Open the folder, which must belong to this user; removes its group's write permission.

    Raises UnsafeFolder, which names the setting, and FileNotFoundError.
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
    """Create the folder if it does not exist, and check it. Raises UnsafeFolder, or OSError if it cannot be created."""
    # A submission's user has to traverse the folder, but must not list it.
    with suppress(FileExistsError):  # `opened_private` then checks what exists.
        folder.mkdir(parents=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    os.close(opened_private(folder, setting))
