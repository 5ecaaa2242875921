"""The digest of what is in a folder: what a build has left, and whether it is still that."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from domain.fault import KernelFault
from domain.result import Status
from sandbox.scratch import TooMuch, entries

MAX_FOLDER_BYTES = 2 << 30
"""Of all files that a build leaves; a file may be long and hold nothing, and is read to its end all the same."""


def digest(folder: Path) -> bytes:
    """Of every file in a folder, by name and content. What is no plain file counts by its name alone.

    Raises KernelFault (UNSUPPORTED) for a folder that is too large to be read.
    """
    found = hashlib.blake2b(digest_size=32)
    size = 0
    try:
        left = sorted(entries(folder), key=lambda entry: entry.path)
    except TooMuch as error:
        raise KernelFault(Status.UNSUPPORTED, f"the build left {error}: write less while it is imported") from error
    for entry in left:
        found.update(os.fsencode(os.path.relpath(entry.path, folder)) + b"\0")
        if entry.is_file(follow_symlinks=False):
            size += entry.stat(follow_symlinks=False).st_size
            if size > MAX_FOLDER_BYTES:
                raise KernelFault(
                    Status.UNSUPPORTED,
                    f"the build left more than {MAX_FOLDER_BYTES >> 30} GiB in its folder: write less while the source "
                    "is imported",
                )
            found.update(_content(entry.path))
    return found.digest()


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).digest()
    except PermissionError as error:  # Of a worker that is not root.
        raise KernelFault(Status.UNSUPPORTED, "the build left a file that it does not let us read") from error
