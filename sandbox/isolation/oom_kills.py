"""Counts the kills by the kernel's OOM killer: a SIGKILL alone does not say who sent it."""

from __future__ import annotations

from pathlib import Path

MACHINE = Path("/proc/vmstat")
"""The count for all processes of the machine, other containers' included."""


def count(events: Path) -> int | None:
    """The count in /proc/vmstat or in a cgroup's memory.events; None if the file has none (before Linux 4.13)."""
    try:
        words = (line.split() for line in events.read_text(encoding="ascii").splitlines())
        return next((int(number) for name, number in words if name == "oom_kill"), None)
    except (OSError, ValueError):
        return None
