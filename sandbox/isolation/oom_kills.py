"""Counts the kills by the kernel's OOM killer: a SIGKILL alone does not say who sent it."""

from __future__ import annotations

from pathlib import Path

MACHINE = Path("/proc/vmstat")
"""Has the number of OOM kills on the whole machine, other containers included."""


def oom_kill_count(events: Path) -> int | None:
    """Number of OOM kills, by /proc/vmstat or a cgroup's memory.events.

    None if the file cannot be read, or lacks the counter (before Linux 4.13).
    """
    try:
        words = (line.split() for line in events.read_text(encoding="ascii").splitlines())
        return next((int(number) for name, number in words if name == "oom_kill"), None)
    except (OSError, ValueError):
        return None
