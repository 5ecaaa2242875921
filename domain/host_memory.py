"""The host memory of this machine, and the part of it that each submission's process may take by default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

RUNNERS_PER_JOB = 2
"""Processes of submissions that a job may have at once: a comparison has two kernels."""
USUAL_JOBS_AT_ONCE = 4
"""Jobs of a worker at once where MAX_WORKERS is not set, on a GPU."""
LEAST_RUNNER_MEMORY = 4 << 30
"""Minimum share, in bytes: a process with a CUDA context and torch's libraries takes some of them itself."""

_GROUPS = Path("/sys/fs/cgroup")


def machine_memory(groups: Path = _GROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory of this machine, or of its control group (a container's) where that may have less."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_limits(groups, own)])


def runner_memory_share(jobs_at_once: int, memory: int | None = None) -> int:
    """Bytes for each submission's process where all workers of this machine judge so many jobs at once.

    All processes together fit into the machine, unless LEAST_RUNNER_MEMORY is more than a share.
    """
    whole = machine_memory() if memory is None else memory
    return max(LEAST_RUNNER_MEMORY, whole // (RUNNERS_PER_JOB * jobs_at_once))


def _limits(groups: Path, own: Path) -> Iterator[int]:
    """The limits of this process's group and of those above it, in either version of control groups."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
        here = root / path.lstrip("/")
        # A container may see its own group as the root.
        for folder in (here, *here.parents):
            if folder.is_relative_to(root):
                yield from _number(folder / name)


def _number(file: Path) -> Iterator[int]:
    try:
        yield int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # Without the controller, or "max".
        return
