"""Which machine this is, beside others of its host name."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux' own, another after each boot (random(4)); containers have their host's."""


@cache
def machine() -> str | None:
    """This machine since it was booted, and this container: who dies here and begins anew does so in the same."""
    try:
        return f"{BOOT_ID.read_text(encoding='ascii').strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None
