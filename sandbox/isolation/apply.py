"""Confines every untrusted process between its fork and the first line of the submission.

The zygote prepares the confinement once: it opens paths and finds out what the host allows. Each child applies it while
it has a single thread, because Landlock, seccomp and the user id are per thread and later threads inherit them.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.isolation import landlock, namespaces, seccomp, uid
from sandbox.isolation.file_access import (
    SHARED_MEMORY,
    USE_SHARED_MEMORY,
    below,
    out_of_reach,
    readable,
    restrict_removal_to_owners,
)
from sandbox.isolation.gpu_device_nodes import GpuNodes, gpu_nodes
from sandbox.isolation.rlimits import die_with_parent, keep_descendants, limit, limit_processes, no_new_privileges

OUT_OF_THE_WAY = 100


class Confinement:
    """Confines the processes that one zygote forks.

    The folders of the submissions lie below `folder`; `tools` are programs that they may run.
    """

    def __init__(self, folder: Path, *, gpu: bool, tools: Sequence[Path] = ()) -> None:
        self.abi = landlock.abi()
        self.uses_seccomp = seccomp.available() is None
        self.uses_namespaces = namespaces.why_not() is None
        readable_paths = readable(folder) | dict.fromkeys(tools, landlock.READ_AND_EXECUTE)
        self._readable = [(_opened(place), _access(place, access)) for place, access in readable_paths.items()]
        self.gpus = gpu_nodes(os.environ.get("CUDA_VISIBLE_DEVICES")) if gpu else GpuNodes()
        access = landlock.USE_DEVICE | landlock.READ_DIR
        self._nodes = [(_opened(node), _access(node, access)) for node in self.gpus.nodes]
        self.unreachable_folder = out_of_reach(folder)
        """The first folder on the way to a runner's files that other users cannot enter; None if there is none."""
        # Landlock limits the files that this capability opens. Without Landlock it would open the whole machine.
        self.keeps_search_capability = (
            self.unreachable_folder is not None and self.uses_landlock and uid.searches_everywhere()
        )

        # Where other users share /dev/shm, only ownership separates files. A submission without a user of its own could
        # read theirs, and nobody could count or remove its files.
        own = self.uses_namespaces or (
            self.has_own_users and not self.keeps_search_capability and restrict_removal_to_owners(SHARED_MEMORY)
        )
        self._shares_memory = own and SHARED_MEMORY.is_dir()

        self._enters_as_user = False
        self.no_private_tmp_reason = self._why_no_private_tmp([folder, *readable_paths], gpu=gpu)
        """Why /tmp is not a folder of each submission's own; None if it is."""

        self._proc_descriptor: int | None = None
        if self.uses_seccomp:
            self._filter(own_user=self.has_own_users)  # Assembled once here, instead of in every child.

    @property
    def uses_landlock(self) -> bool:
        return self.abi >= landlock.OLDEST_ABI

    @property
    def children_use_gpu(self) -> bool:
        """Whether programs that a submission starts can use the GPU."""
        return self.has_own_users or not self.uses_landlock

    @property
    def has_own_users(self) -> bool:
        """Whether every submission can get a user of its own."""
        return uid.why_not() is None and (self.unreachable_folder is None or self.keeps_search_capability)

    def _why_no_private_tmp(self, needed: Iterable[Path], *, gpu: bool) -> str | None:
        """Why /tmp cannot be private, or None. Also chooses between mount and user namespaces."""
        hidden = below(namespaces.TEMPORARY, needed)
        if not namespaces.TEMPORARY.is_dir():
            return f"there is no {namespaces.TEMPORARY}"
        if hidden is not None:
            return f"{hidden} lies below {namespaces.TEMPORARY}, and submissions need it: move it elsewhere"
        if self.uses_namespaces:
            return None
        if os.geteuid() == 0:
            return "the worker lacks CAP_SYS_ADMIN"
        if self.keeps_search_capability:
            return f"{self.unreachable_folder} is closed to other users, and would be to this one in a user namespace"
        if gpu:
            return "the worker is not root, and CUDA is not tried in a user namespace"
        if missing := namespaces.why_no_users():
            return f"no mounts in a user namespace: {missing}"
        self._enters_as_user = True
        return None

    def apply(self, folder: Path, *, gpu: bool, children_use_gpu: bool = False) -> None:
        """Confines this process, while it has one thread, to its owner's `folder`. Raises OSError, RuntimeError.

        With the argument `children_use_gpu`, programs that it starts may use the GPU; the property of that name must
        allow it.
        """
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError("confine a process before it starts threads: this one has several")
        os.setsid()
        parent = os.getppid()
        limit()
        if self.uses_namespaces:
            namespaces.enter()
        elif self._enters_as_user:
            namespaces.enter_as_user()
        if self.no_private_tmp_reason is None:
            # The service counts, moves and removes files in /tmp with the rest of the folder.
            namespaces.mount_as_temporary(folder)
        user = folder.stat().st_uid if self.has_own_users else os.geteuid()
        own_user = user != os.geteuid()
        uid.become(user, search_everywhere=self.keeps_search_capability)
        if own_user:
            limit_processes()
        die_with_parent(parent)  # The kernel clears this setting when the user changes.
        no_new_privileges()
        keep_descendants()
        os.umask(0o077)
        _use_as_home(folder)
        if self.uses_landlock:
            self._restrict_files(folder, gpu=gpu, own_user=own_user, children_use_gpu=children_use_gpu)
        if self.uses_seccomp:
            signals_elsewhere = own_user or (self.uses_landlock and self.abi >= landlock.SCOPE_ABI)
            seccomp.install(self._filter(own_user=own_user), own_user=own_user, signals_elsewhere=signals_elsewhere)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def close_all_but(self, first: int) -> None:
        """Closes every descriptor from `first` on, except the one of /proc, which moves to `first`."""
        if self._proc_descriptor is not None:
            os.dup2(self._proc_descriptor, first, inheritable=False)
            first += 1
        os.closerange(first, 4096)

    def _filter(self, *, own_user: bool) -> bytes:
        return seccomp.rules(own_user=own_user, truncation_elsewhere=self.abi >= landlock.TRUNCATION_ABI)

    def _restrict_files(self, folder: Path, *, gpu: bool, own_user: bool, children_use_gpu: bool) -> None:
        rules = landlock.Ruleset(self.abi)
        for place, access in self._readable + (self._nodes if gpu else []):
            rules.allow(place, access)
        _allow(rules, folder, landlock.OWN)
        if self._shares_memory and (self.uses_namespaces or own_user):
            _allow(rules, SHARED_MEMORY, USE_SHARED_MEMORY)
        # CUDA names its threads in /proc/self when it starts, and gives up with error 304 if it cannot. The rule holds
        # as long as the descriptor is open: the kernel recreates the entries of /proc when nobody has them open.
        # Programs that it starts have entries of their own, which no rule can name yet. For them the rule covers all of
        # /proc, and file ownership protects other processes.
        opened = _opened(Path("/proc" if children_use_gpu and own_user else "/proc/self/"))
        self._proc_descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        os.close(opened)
        rules.allow(self._proc_descriptor, landlock.READ | landlock.WRITE)
        rules.enforce()


def _use_as_home(folder: Path) -> None:
    """Makes the folder the working directory, and the place of all caches of libraries."""
    # Imported here: the API's image has this module, and no backends.
    from backends.languages.registry import cache_variables

    os.chdir(folder)
    os.environ |= {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_CACHE_DISABLE": "1",  # No other job could have it, and its files would end a runner that may be kept.
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
        **cache_variables(folder),
    }
    tempfile.tempdir = None  # Python asks for the folder once, and a library that the zygote imported may have.
    # CuPy 14 reads the variable when it is imported, which the zygote did before.
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
