"""The build environment of a process: compilers, folders, a zygote that forks builders, and the build caches."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from backends.base import Target
from backends.dry_run.example import may_compile
from domain.fault import InfrastructureFault
from domain.kernel import Kernel
from domain.settings import settings
from sandbox.isolation.scratch_dir import remove
from sandbox.isolation.uid import allow_traversal
from sandbox.supervisor.process_register import ProcessRegister
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tasks.builds.local_cache import BuildCache, key_of
from tasks.builds.shared_cache import BuildTarget, SharedBuilds
from tasks.node import device_info, tool_lookup
from tasks.node.private_dir import make_private
from tasks.node.redis_client import connect
from tasks.node.scratch_dir import ScratchDir
from tasks.node.toolchain import Compilers, processor

log = logging.getLogger(__name__)

BUILDERS_ARENA = 1 << 30
"""Arena size of a builder, in bytes; unused, because a builder only builds."""


class BuildSession:
    """Builds for one target; `close` ends everything it started. Contains no submission data."""

    def __init__(self, target: Target, name: str | None = None) -> None:
        """`name` identifies the maker of its builds to others; by default it is the host name."""
        make_private(settings().state_dir, "STATE_DIR")
        self._compilers = Compilers(settings().state_dir / "toolchains")
        self.target = replace(target, toolchain=self._compilers.folder)
        self.name = name or socket.gethostname()
        self.arena_limit = BUILDERS_ARENA
        self._own_folder = ScratchDir(settings().state_dir / "work")
        self.register = ProcessRegister(settings().state_dir / "processes")
        self.register.add(os.getpid())
        self.folder = self._own_folder.path
        self._zygote: Zygote | None = None
        limit, shared = settings().build_cache, settings().shared_builds
        self.builds = BuildCache(settings().state_dir / "builds", limit) if limit else None
        """The build cache of all processes on this node with the same STATE_DIR; None if disabled."""
        self.shared = SharedBuilds(connect(waits=False), shared) if shared else None
        """The build cache of all nodes; None if disabled."""

    @property
    def zygote(self) -> Zygote:
        """The zygote; started on first use, and restarted if it has died."""
        if self._zygote is not None and not self._zygote.alive:
            self._discard()
        if self._zygote is None:
            toolchain = self.target.toolchain
            tools = [*([Path(toolchain)] if toolchain is not None else []), *tool_lookup.folders()]
            self._zygote = Zygote(
                self.folder,
                arch=self.target.arch,
                memory_limit=settings().runner_memory,
                tools=tools,
                register=self.register,
            )
        return self._zygote

    def build_key(self, kernel: Kernel, example: Any = None, *, gradients: bool = False) -> str:
        """The key of this kernel's build for this target in the build caches; the rest as `told_for` gives it."""
        wire = kernel.to_wire()
        own = processor() if not self.target.is_cuda or "native" in json.dumps(wire) else None
        backward = ["gradients"] if gradients else []
        return key_of([wire, self.target.device, self.target.arch, own, self.toolchain, example, *backward])

    def told_for(self, kernel: Kernel, example: Any, gradients: bool) -> tuple[Any, bool]:
        """The reference's example and whether the job calls the backward, as far as the kernel's build depends on
        them."""
        if not (self.target.is_cuda and may_compile(kernel)):
            return None, False
        return None if kernel.is_reference else example, gradients

    @property
    def toolchain(self) -> str:
        """Identity of the compilers: nodes with the same identity can share builds."""
        return self._compilers.identity

    @cached_property
    def own_target(self) -> BuildTarget:
        """The target of this session's builds, as build-only workers need it: the device of this node runs them."""
        arch = self.target.arch or device_info.CPU_ONLY
        return BuildTarget(device_info.detect().model, arch, self.toolchain)

    @cached_property
    def gpu_session(self) -> BuildSession | None:
        """Compiles for the GPU that BUILD_FOR names; None without that setting, and where there is a GPU."""
        arch = settings().build_for
        return None if self.target.is_cuda or arch is None else BuildSession(Target("cuda:0", arch), self.name)

    def start_zygote(self) -> None:
        """Start the zygote before a kernel's time begins: it may take seconds. Raises InfrastructureFault."""
        _ = self.zygote

    def private_folder(self, folder: Path) -> Path:
        """Create the private folder in which one kernel is built and run."""
        return self.zygote.private_folder(folder)

    def session(self, folder: Path, *, gpu: bool, deadline: float, cancelled: Callable[[], bool]) -> Session:
        """A fresh runner in a private folder, or a builder without `gpu`. `deadline` is a time.monotonic()."""
        try:
            return self._session(folder, gpu, deadline, cancelled)
        except InfrastructureFault:
            self._discard()
            raise

    @contextmanager
    def job_folder(self) -> Iterator[Path]:
        """A folder for one job's files, removed afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder))
        allow_traversal(folder)
        try:
            yield folder
        finally:
            for private in folder.iterdir():
                remove(private)
            remove(folder)

    def close(self) -> None:
        """End the zygote and all runners, and remove the folder."""
        if (gpu_session := vars(self).get("gpu_session")) is not None:
            gpu_session.close()
        self._discard()
        self._own_folder.close()
        self.register.close()

    def _session(self, folder: Path, gpu: bool, deadline: float, cancelled: Callable[[], bool]) -> Session:
        runner = self.zygote.runner(folder, gpu=gpu, deadline=deadline, cancelled=cancelled)
        return Session(runner, self.target, self.arena_limit)

    def _discard(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
        self._zygote = None


def deadline_in(seconds: float) -> float:
    """The time.monotonic() that many seconds from now."""
    return time.monotonic() + seconds
