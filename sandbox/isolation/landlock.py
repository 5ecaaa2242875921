"""Landlock: which files a process may open, decided by the process itself and never taken back; no root needed.

Here are the calls; which files those are is said in `sandbox.isolation.file_access`.
"""

from __future__ import annotations

import ctypes
import os
import struct

from sandbox.isolation.syscalls import call

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

READ = READ_FILE | READ_DIR
READ_AND_EXECUTE = READ | EXECUTE
WRITE = WRITE_FILE | TRUNCATE
USE_DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
OWN = READ_AND_EXECUTE | WRITE | REMOVE_DIR | REMOVE_FILE | REFER | IOCTL_DEV
OWN |= MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
"""Everything but device nodes."""

ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""What may be allowed of something that is no folder."""

OLDEST_ABI = 2
"""Before it, no file can be moved from one folder to another, which is how Triton fills its cache."""

_TRUNCATION_ABI, _NETWORK_ABI, _IOCTL_ABI, _SCOPE_ABI = 3, 4, 5, 6
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_PATH_BENEATH = 1


def abi() -> int:
    """The version of the kernel's Landlock; 0 where it has none."""
    try:
        return call("landlock_create_ruleset", None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


class Ruleset:
    """What is allowed; everything else is refused from `enforce` on, to this thread and to what it starts.

    Network ports are refused from ABI 4 on. From ABI 6 on, signals and abstract sockets of processes outside are too.
    """

    def __init__(self, version: int) -> None:
        self._handled = OWN | MAKE_CHAR | MAKE_BLOCK
        if version < _TRUNCATION_ABI:
            self._handled &= ~TRUNCATE
        if version < _IOCTL_ABI:
            self._handled &= ~IOCTL_DEV
        attributes = struct.pack("Q", self._handled)
        if version >= _NETWORK_ABI:
            attributes += struct.pack("Q", _BIND_AND_CONNECT_TCP)
        if version >= _SCOPE_ABI:
            attributes += struct.pack("Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
        self._descriptor = call("landlock_create_ruleset", attributes, ctypes.c_size_t(len(attributes)), 0)

    def allow(self, place: int, access: int) -> None:
        """Beneath what that descriptor (O_PATH) stands for. Raises OSError."""
        rule = struct.pack("=Qi", access & self._handled, place)
        call("landlock_add_rule", self._descriptor, _PATH_BENEATH, rule, 0)

    def enforce(self) -> None:
        """From here on. Needs no_new_privs."""
        call("landlock_restrict_self", self._descriptor, 0)
        os.close(self._descriptor)


def keeps_signals(version: int) -> bool:
    """Whether processes outside cannot be sent any."""
    return version >= _SCOPE_ABI


def keeps_truncation(version: int) -> bool:
    """Whether a file that may not be written cannot be cut either."""
    return version >= _TRUNCATION_ABI
