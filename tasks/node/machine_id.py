"""Identity of this machine, distinct from machines with the same host name."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux' boot id: new at each boot (random(4)), and shared by all containers of a host."""


@cache
def machine() -> str | None:
    """Identifies this boot of the machine and this container, so a process that restarts here is recognised."""
    try:
        return f"{BOOT_ID.read_text(encoding='ascii').strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None
