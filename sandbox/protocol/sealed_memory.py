"""Memory that two processes share by descriptor, of a fixed size.

Without seals, a runner could truncate the file, and the referee would die (SIGBUS) at the missing pages. Nor may the
file grow, because shared memory does not count as the runner's.
"""

from __future__ import annotations

import fcntl
import os


def sealed_memory(name: str, size: int) -> int:
    """A descriptor of `size` bytes of memory; `name` shows in /proc."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor
