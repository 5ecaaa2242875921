"""Locks on single bytes of an open file. The kernel keeps them for the open file and releases them when it is closed.

The bytes need not exist, so that a number can be locked. A killed process closes its files.
"""

from __future__ import annotations

import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x")
"""C's `struct flock` on 64-bit Linux: type, whence, start, length (0: without end), process."""


def try_lock(file: int, byte: int) -> bool:
    """Lock that byte of the open file; returns False if another open file holds it."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except BlockingIOError:
        return False
    return True


def unlock(file: int, byte: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


def find_locked(file: int, start: int, end: int) -> int | None:
    """A byte of the range that another open file holds; None if there is none. `end` is not in the range."""
    reply = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0))
    kind, _, byte, _, _ = _FLOCK.unpack(reply)
    return None if kind == fcntl.F_UNLCK else int(byte)
