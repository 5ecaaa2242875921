"""Control groups (v2): bound memory, processes and processor time of a runner and its descendants, and kill them.

The worker uses them if it may create groups: as root with /sys/fs/cgroup writable, or in a systemd unit that delegates
(`Delegate=yes`, `DelegateSubgroup=`). Elsewhere the launcher watches the runner itself
(`sandbox.supervisor.resource_watch`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.isolation import oom_kills
from sandbox.isolation.rlimits import MAX_PROCESSES

CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "kernel-eval-"
SERVICE_GROUP = "kernel-eval-service"
SPARE_MEMORY = 2 << 30
"""Bytes above the launcher's own limit, for shared memory and for the kernel's page cache."""

_PERIOD_US = 100_000
GONE_S = 1.0
"""Maximum time that `Cgroup.close` waits for zombies, in s."""


class Cgroup:
    """The group of one runner; its limits hold from `add` on."""

    def __init__(self, path: Path, memory_limit: int) -> None:
        path.mkdir()
        self._path = path
        cpus = len(os.sched_getaffinity(0))
        limits = {
            "memory.max": memory_limit + SPARE_MEMORY,
            "memory.swap.max": 0,
            "memory.oom.group": 1,
            "pids.max": MAX_PROCESSES,
            # The referee keeps one processor for itself.
            "cpu.max": f"{max(1, cpus - 1) * _PERIOD_US} {_PERIOD_US}",
        }
        for name, value in limits.items():
            with contextlib.suppress(OSError):  # The controller may be missing.
                (path / name).write_text(str(value))

    def add(self, pid: int) -> None:
        """Moves a process into the group. Raises OSError."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def memory_kills(self) -> int | None:
        """How many of its processes the OOM killer has killed; None if the kernel does not count that."""
        return oom_kills.oom_kill_count(self._path / "memory.events")

    def end(self) -> None:
        """Kills every process in it at once."""
        with contextlib.suppress(OSError):
            (self._path / "cgroup.kill").write_text("1")

    def close(self) -> None:
        """Removes the group once its processes are gone, zombies included."""
        until = time.monotonic() + GONE_S
        while time.monotonic() < until:
            try:
                return self._path.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
            time.sleep(0.001)


class Cgroups:
    """The folder in which this worker may create groups, and the controllers that they have."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.controllers = tuple(name for name in CONTROLLERS if name in _words(base / "cgroup.subtree_control"))

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in CONTROLLERS if name not in self.controllers)

    def group(self, name: str, memory_limit: int) -> Cgroup:
        """Creates a group. Raises OSError."""
        return Cgroup(self._base / f"{PREFIX}{os.getpid()}-{name}", memory_limit)


def available(candidates: Iterable[Path] | None = None) -> Cgroups | None:
    """Where this worker may create groups; None if it may not. Also removes the groups of dead workers.

    The first suitable folder of `candidates` counts; by default its own group and the one above are tried.
    """
    for base in _own_groups() if candidates is None else candidates:
        if _usable(base):
            _sweep(base)
            return Cgroups(base)
    return None


def _own_groups() -> Iterator[Path]:
    """The group of this process, and the one above it."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        mount_lines = [line.split() for line in mounts if " - cgroup2 " in line]
    with open("/proc/self/cgroup", encoding="utf-8") as groups:
        own = next((line[3:].strip() for line in groups if line.startswith("0::")), None)
    if mount_lines and own is not None:
        mounted = Path(mount_lines[0][4])
        here = mounted / own.lstrip("/")
        yield here
        if here != mounted:
            yield here.parent


def _usable(base: Path) -> bool:
    trial = base / f"{PREFIX}{os.getpid()}-trial"
    try:
        trial.mkdir()
        killable = (trial / "cgroup.kill").exists()
        trial.rmdir()
    except OSError:
        return False
    return killable and _delegates(base)


def _delegates(base: Path) -> bool:
    """Whether groups below may have this group's controllers; enables them."""
    controllers = " ".join(f"+{name}" for name in CONTROLLERS if name in _words(base / "cgroup.controllers"))
    try:
        (base / "cgroup.subtree_control").write_text(controllers)
    except OSError as error:
        if error.errno != errno.EBUSY or base.parent.joinpath("cgroup.procs").exists():
            return False
        return _move_down(base, controllers)
    return True


def _move_down(base: Path, controllers: str) -> bool:
    """Moves a container's own processes into a group below: only an empty group may have limited groups below it."""
    try:
        (base / SERVICE_GROUP).mkdir(exist_ok=True)
        for pid in _words(base / "cgroup.procs"):
            with contextlib.suppress(ProcessLookupError):
                (base / SERVICE_GROUP / "cgroup.procs").write_text(pid)
        (base / "cgroup.subtree_control").write_text(controllers)
    except OSError:
        return False
    return True


def _sweep(base: Path) -> None:
    for left in base.glob(f"{PREFIX}[0-9]*-*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                (left / "cgroup.kill").write_text("1")
                left.rmdir()


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
