"""What every stranger's process gives up between fork and the first line of a submission.

Prepared once in the zygote (paths opened, what the host allows found out); applied in each child while it has one
thread, since Landlock, seccomp and the user id are a thread's own and its later threads inherit them.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.isolation import landlock, namespaces, seccomp, uid
from sandbox.isolation.file_access import (
    SHARED_MEMORY,
    USE_SHARED_MEMORY,
    below,
    keeps_owners_apart,
    out_of_reach,
    readable,
)
from sandbox.isolation.gpu_device_nodes import GpuNodes, gpu_nodes
from sandbox.isolation.rlimits import die_with_parent, keep_descendants, limit, limit_processes, no_new_privileges

OUT_OF_THE_WAY = 100


class Confinement:
    """Of the strangers that one process forks. `folder` is where their own folders lie, `tools` they may run."""

    def __init__(self, folder: Path, *, gpu: bool, tools: Sequence[Path] = ()) -> None:
        self.abi = landlock.abi()
        self.filters = seccomp.available() is None
        self.isolates = namespaces.why_not() is None
        places = readable(folder) | dict.fromkeys(tools, landlock.READ_AND_EXECUTE)
        self._places = [(_opened(place), _access(place, access)) for place, access in places.items()]
        self.gpus = gpu_nodes(os.environ.get("CUDA_VISIBLE_DEVICES")) if gpu else GpuNodes()
        access = landlock.USE_DEVICE | landlock.READ_DIR
        self._nodes = [(_opened(node), _access(node, access)) for node in self.gpus.nodes]
        self.closed = out_of_reach(folder)
        """A folder that other users cannot enter, on the way to what a runner needs; None where there is none."""
        # Landlock bounds what that capability opens; without it a stranger would read the whole machine.
        self.searches = self.closed is not None and self.lands and uid.searches_everywhere()

        # In one that others have too, files are told apart by their owners, if at all: theirs could be read, and its
        # own would be counted and removed by nobody, where that is not a user of its own that cannot search theirs.
        own = self.isolates or (self.gives_users and not self.searches and keeps_owners_apart(SHARED_MEMORY))
        self._shares_memory = own and SHARED_MEMORY.is_dir()

        self._enters_as_user = False
        self.no_temporary = self._why_no_temporary([folder, *places], gpu=gpu)
        """Why /tmp is not each stranger's own folder, or None where it is."""

        self._itself: int | None = None
        if self.filters:
            self._filter(own_user=self.gives_users)  # Assembled here, and not in every child.

    @property
    def lands(self) -> bool:
        """Whether Landlock is used."""
        return self.abi >= landlock.OLDEST_ABI

    @property
    def starts_others(self) -> bool:
        """Whether programs that a stranger starts can use the GPU."""
        return self.gives_users or not self.lands

    @property
    def gives_users(self) -> bool:
        """Whether strangers can have users of their own."""
        return uid.why_not() is None and (self.closed is None or self.searches)

    def _why_no_temporary(self, needed: Iterable[Path], *, gpu: bool) -> str | None:
        """Also finds out how it is made."""
        hidden = below(namespaces.TEMPORARY, needed)
        if not namespaces.TEMPORARY.is_dir():
            return f"there is no {namespaces.TEMPORARY}"
        if hidden is not None:
            return f"{hidden} lies below {namespaces.TEMPORARY}, and submissions need it: move it elsewhere"
        if self.isolates:
            return None
        if os.geteuid() == 0:
            return "the worker lacks CAP_SYS_ADMIN"
        if self.searches:
            return f"{self.closed} is closed to other users, and would be to this one in a user namespace"
        if gpu:
            return "the worker is not root, and CUDA is not tried in a user namespace"
        if missing := namespaces.why_no_users():
            return f"no mounts in a user namespace: {missing}"
        self._enters_as_user = True
        return None

    def apply(self, folder: Path, *, gpu: bool, starts_others: bool = False) -> None:
        """In a child of one thread: confined to `folder`, as its owner. Raises OSError, RuntimeError.

        `starts_others`: programs that it starts use the GPU. Not where `starts_others` says no.
        """
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError("a process is confined before it starts threads, and this one has some")
        os.setsid()
        parent = os.getppid()
        limit()
        if self.isolates:
            namespaces.enter()
        elif self._enters_as_user:
            namespaces.enter_as_user()
        if self.no_temporary is None:
            # Files in it are counted, moved and removed with the rest of the folder.
            namespaces.mount_as_temporary(folder)
        user = folder.stat().st_uid if self.gives_users else os.geteuid()
        own_user = user != os.geteuid()
        uid.become(user, search_everywhere=self.searches)
        if own_user:
            limit_processes()
        die_with_parent(parent)  # Forgotten when the user changes.
        no_new_privileges()
        keep_descendants()
        os.umask(0o077)
        _settle_in(folder)
        if self.lands:
            self._restrict_files(folder, gpu=gpu, own_user=own_user, starts_others=starts_others)
        if self.filters:
            signals_elsewhere = own_user or (self.lands and landlock.keeps_signals(self.abi))
            seccomp.install(self._filter(own_user=own_user), own_user=own_user, signals_elsewhere=signals_elsewhere)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def close_all_but(self, first: int) -> None:
        """Closes every descriptor from `first` on; what has to stay open is moved there."""
        if self._itself is not None:
            os.dup2(self._itself, first, inheritable=False)
            first += 1
        os.closerange(first, 4096)

    def _filter(self, *, own_user: bool) -> bytes:
        return seccomp.rules(own_user=own_user, truncation_elsewhere=landlock.keeps_truncation(self.abi))

    def _restrict_files(self, folder: Path, *, gpu: bool, own_user: bool, starts_others: bool) -> None:
        rules = landlock.Ruleset(self.abi)
        for place, access in self._places + (self._nodes if gpu else []):
            rules.allow(place, access)
        _allow(rules, folder, landlock.OWN)
        if self._shares_memory and (self.isolates or own_user):
            _allow(rules, SHARED_MEMORY, USE_SHARED_MEMORY)
        # CUDA names its threads there as it starts, and gives up where it cannot (error 304). The rule holds for as
        # long as the descriptor does: what /proc shows of a process is made anew whenever nobody has it open.
        # What it starts has entries of its own, which no rule can name yet: there the rule is for all of /proc, and
        # whose files may be written is left to their owners.
        opened = _opened(Path("/proc" if starts_others and own_user else "/proc/self/"))
        self._itself = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        os.close(opened)
        rules.allow(self._itself, landlock.READ | landlock.WRITE)
        rules.enforce()


def _settle_in(folder: Path) -> None:
    """Makes the folder the current one, and the place of everything that libraries keep."""
    os.chdir(folder)
    os.environ |= {
        "HOME": str(folder),
        "USER": "runner",
        "LOGNAME": "runner",
        "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
    }
    # CuPy 14 asks for it when it is imported, which the zygote has done long ago.
    compiler = sys.modules.get("cupy.cuda.compiler")
    cache = getattr(compiler, "_kernel_cache_backend", None)
    if cache is not None:
        compiler._kernel_cache_backend = type(cache)()  # type: ignore[union-attr]


def _allow(rules: landlock.Ruleset, place: Path, access: int) -> None:
    opened = _opened(place)
    rules.allow(opened, access)
    os.close(opened)


def _opened(place: Path) -> int:
    return os.open(place, os.O_PATH | os.O_CLOEXEC)


def _access(place: Path, access: int) -> int:
    return access if place.is_dir() else access & landlock.ON_FILES
