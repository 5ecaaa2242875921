"""Memory that two processes share by descriptor, of a size that neither can change.

Whoever has the descriptor of a file of memory may cut it short, and who touches a page past its end is killed (SIGBUS):
a runner could end the referee so. Nor may it grow: what is lent is not counted as the runner's.
"""

from __future__ import annotations

import fcntl
import os


def sealed_memory(name: str, size: int) -> int:
    """A descriptor of that many bytes; `name` is for those who look into /proc."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor
