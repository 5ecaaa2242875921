"""Control groups (v2): memory, processes and processor time of a stranger and all that it starts, bounded and ended.

Used where the worker may make groups of its own: as root with /sys/fs/cgroup writable, or in a unit that systemd
delegates (`Delegate=yes`, `DelegateSubgroup=`). Elsewhere the launcher watches (`sandbox.supervisor.resource_watch`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox.isolation import oom_kills as memory_kills
from sandbox.isolation.rlimits import MAX_PROCESSES

WANTED = ("memory", "pids", "cpu")
PREFIX = "kernel-eval-"
OURS = "kernel-eval-service"
SPARE_MEMORY = 2 << 30
"""Above the limit that the launcher watches, for what is shared and for files that the kernel keeps in memory."""

_PERIOD_US = 100_000
_GONE_S = 1.0


class Cgroup:
    """Of one runner; its limits hold from `add` on."""

    def __init__(self, path: Path, memory_limit: int) -> None:
        path.mkdir()
        self._path = path
        cpus = len(os.sched_getaffinity(0))
        limits = {
            "memory.max": memory_limit + SPARE_MEMORY,
            "memory.swap.max": 0,
            "memory.oom.group": 1,
            "pids.max": MAX_PROCESSES,
            # One processor is left to the referee.
            "cpu.max": f"{max(1, cpus - 1) * _PERIOD_US} {_PERIOD_US}",
        }
        for name, value in limits.items():
            with contextlib.suppress(OSError):  # Of a controller that is not there.
                (path / name).write_text(str(value))

    def add(self, pid: int) -> None:
        """Raises OSError."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def memory_kills(self) -> int | None:
        """How many in it were killed for want of memory, be it the group's or the machine's; None where none counts."""
        return memory_kills.count(self._path / "memory.events")

    def end(self) -> None:
        """Kills everything in it at once."""
        with contextlib.suppress(OSError):
            (self._path / "cgroup.kill").write_text("1")

    def close(self) -> None:
        """Removes it once what was in it has gone, zombies included."""
        until = time.monotonic() + _GONE_S
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
    """Where this worker may make groups, and with which controllers."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.controllers = tuple(name for name in WANTED if name in _words(base / "cgroup.subtree_control"))

    @property
    def missing(self) -> tuple[str, ...]:
        """The controllers that are not there."""
        return tuple(name for name in WANTED if name not in self.controllers)

    def group(self, name: str, memory_limit: int) -> Cgroup:
        """A new one. Raises OSError."""
        return Cgroup(self._base / f"{PREFIX}{os.getpid()}-{name}", memory_limit)


def found() -> Cgroups | None:
    """The place for groups; None where this worker cannot make any. Removes those of dead workers."""
    for base in _candidates():
        if _usable(base):
            _sweep(base)
            return Cgroups(base)
    return None


def _candidates() -> Iterator[Path]:
    """The group that we are in, and the one above it."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        found = [line.split() for line in mounts if " - cgroup2 " in line]
    with open("/proc/self/cgroup", encoding="utf-8") as groups:
        own = next((line[3:].strip() for line in groups if line.startswith("0::")), None)
    if found and own is not None:
        mounted = Path(found[0][4])
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
    """Whether groups below may have the controllers that this one has; they are switched on for them."""
    wanted = " ".join(f"+{name}" for name in WANTED if name in _words(base / "cgroup.controllers"))
    try:
        (base / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        if error.errno != errno.EBUSY or base.parent.joinpath("cgroup.procs").exists():
            return False
        return _move_down(base, wanted)
    return True


def _move_down(base: Path, wanted: str) -> bool:
    """A container's own top group: its processes make room, as only groups without any may have limited ones below."""
    try:
        (base / OURS).mkdir(exist_ok=True)
        for pid in _words(base / "cgroup.procs"):
            with contextlib.suppress(ProcessLookupError):
                (base / OURS / "cgroup.procs").write_text(pid)
        (base / "cgroup.subtree_control").write_text(wanted)
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
