"""The digest of what is in a folder: what a build has left, and whether it is still that."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from domain.fault import KernelFault
from domain.result import Status

MAX_FOLDER_BYTES = 2 << 30
"""Of all files that a build leaves; a file may be long and hold nothing, and is read to its end all the same."""


def digest(folder: Path) -> bytes:
    """Of every file in a folder, by name and content. What is no plain file counts by its name alone.

    Raises KernelFault (UNSUPPORTED) for a folder that is too large to be read.
    """
    found = hashlib.blake2b(digest_size=32)
    size = 0
    for path in sorted(folder.rglob("*")):
        found.update(os.fsencode(path.relative_to(folder)) + b"\0")
        if path.is_file() and not path.is_symlink():
            size += path.stat().st_size
            if size > MAX_FOLDER_BYTES:
                raise KernelFault(
                    Status.UNSUPPORTED,
                    f"the build left more than {MAX_FOLDER_BYTES >> 30} GiB in its folder: write less while the source "
                    "is imported",
                )
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, hashlib.blake2b).digest())
    return found.digest()
