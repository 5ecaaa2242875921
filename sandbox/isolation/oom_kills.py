"""How often the kernel has killed for want of memory: a SIGKILL does not say who sent it, and this tells one sender."""

from __future__ import annotations

from pathlib import Path

MACHINE = Path("/proc/vmstat")
"""Of all processes of the machine, those of other containers too."""


def count(events: Path) -> int | None:
    """What that file says, /proc/vmstat's or a cgroup's memory.events; None where it does not (Linux 4.13)."""
    try:
        words = (line.split() for line in events.read_text(encoding="ascii").splitlines())
        return next((int(number) for name, number in words if name == "oom_kill"), None)
    except (OSError, ValueError):
        return None
