"""Landlock: a process restricts the files that it may open, for good and without root.

This module has the system calls; `sandbox.isolation.file_access` has the list of files.
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
"""Rights to a submission's own folder: everything but device nodes."""

ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that may be granted for a path that is no folder."""

OLDEST_ABI = 2
"""Minimum ABI: before it, no file can move between folders, and Triton needs that to fill its cache."""

TRUNCATION_ABI, _NETWORK_ABI, _IOCTL_ABI, SCOPE_ABI = 3, 4, 5, 6
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_RULE_ON_PATH = 1


def abi() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    try:
        return call("landlock_create_ruleset", None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


class Ruleset:
    """The allowed paths. From `enforce` on, everything else is refused to this thread and to its children.

    From ABI 4 on it also refuses network ports; from ABI 6 on, signals and abstract sockets of processes outside.
    """

    def __init__(self, version: int) -> None:
        self._handled = OWN | MAKE_CHAR | MAKE_BLOCK
        if version < TRUNCATION_ABI:
            self._handled &= ~TRUNCATE
        if version < _IOCTL_ABI:
            self._handled &= ~IOCTL_DEV
        attributes = struct.pack("Q", self._handled)
        if version >= _NETWORK_ABI:
            attributes += struct.pack("Q", _BIND_AND_CONNECT_TCP)
        if version >= SCOPE_ABI:
            attributes += struct.pack("Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
        self._descriptor = call("landlock_create_ruleset", attributes, ctypes.c_size_t(len(attributes)), 0)

    def allow(self, descriptor: int, access: int) -> None:
        """Allows access to the path of that descriptor (O_PATH), and below it. Raises OSError."""
        rule = struct.pack("=Qi", access & self._handled, descriptor)
        call("landlock_add_rule", self._descriptor, _RULE_ON_PATH, rule, 0)

    def enforce(self) -> None:
        """Starts the restriction. Needs no_new_privs."""
        call("landlock_restrict_self", self._descriptor, 0)
        os.close(self._descriptor)
