"""Who holds a device or waits for it, as the kernel's locks tell."""

from __future__ import annotations

import os

from domain.settings import settings
from tasks.node.byte_lock import find_locked
from tasks.node.device_lease import LAST


def in_line(queue: str) -> int:
    """The number of holders and waiters of a queue; 0 if it has no file yet."""
    files = [os.open(path, os.O_RDWR) for path in settings().lease_dir.glob(f"*/{queue}")]
    try:
        return sum(locked_bytes(file, 0, LAST) for file in files)
    finally:
        for file in files:
            os.close(file)


def locked_bytes(file: int, start: int, end: int) -> int:
    if start == end or (found := find_locked(file, start, end)) is None:
        return 0
    return 1 + locked_bytes(file, start, found) + locked_bytes(file, found + 1, end)
