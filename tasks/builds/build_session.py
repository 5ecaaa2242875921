"""What builds need of a process: compilers, folders, a zygote that forks builders, the builds that are kept."""

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
from pathlib import Path

from backends.base import Target
from domain.fault import InfrastructureFault
from domain.kernel import Kernel, KernelType
from domain.settings import settings
from sandbox.isolation.scratch_dir import remove
from sandbox.isolation.uid import allow_traversal
from sandbox.supervisor.process_register import ProcessRegister
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tasks.builds.local_cache import BuildCache, key_of
from tasks.builds.shared_cache import ShippedBuilds
from tasks.node import tool_lookup
from tasks.node.private_dir import make_private
from tasks.node.redis_client import connect
from tasks.node.scratch_dir import BenchFolder
from tasks.node.toolchain import Compilers, processor

log = logging.getLogger(__name__)

BUILDERS_ARENA = 1 << 30
"""Bytes; none of them is used, as a builder is asked for nothing but a build."""


class BuildBench:
    """For builds for one target; `close` ends everything it started. Holds nothing of any submission."""

    def __init__(self, target: Target, name: str | None = None) -> None:
        """`name` is whose its builds are, for others: the host's by itself."""
        make_private(settings().state_dir, "STATE_DIR")
        self._compilers = Compilers(settings().state_dir / "toolchains")
        self.target = replace(target, toolchain=self._compilers.folder)
        self.name = name or socket.gethostname()
        self.arena_memory = BUILDERS_ARENA
        self._own_folder = BenchFolder(settings().state_dir / "work")
        self.register = ProcessRegister(settings().state_dir / "processes")
        self.register.add(os.getpid())
        self.folder = self._own_folder.path
        self._zygote: Zygote | None = None
        limit, shared = settings().build_cache, settings().shared_builds
        self.builds = BuildCache(settings().state_dir / "builds", limit) if limit else None
        """Of every process on this node that has the same STATE_DIR; None where it is switched off."""
        self.shipped = ShippedBuilds(connect(waits=False), shared, self.name) if shared else None
        """Of every node; None where they share none."""

    @property
    def zygote(self) -> Zygote:
        """The zygote; started on first use and again if it has died."""
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

    def build_key(self, kernel: Kernel) -> str:
        """What the build cache knows a build of this kernel for this device by."""
        wire = kernel.to_wire()
        own = processor() if not self.target.is_cuda or "native" in json.dumps(wire) else None
        return key_of([wire, self.target.device, self.target.arch, own, self.toolchain])

    @property
    def toolchain(self) -> str:
        """Which builds are alike: those of nodes that have the same one."""
        return self._compilers.identity

    def ready_compilers(self, kernels: list[Kernel]) -> None:
        """Has headers precompiled, in the background, once there is somebody who may use them."""
        if any(kernel.kernel_type is KernelType.TORCH_CUDA for kernel in kernels):
            self._compilers.precompile()

    def start_zygote(self) -> None:
        """Before a kernel's time begins: its start is ours, seconds on a busy machine. Raises InfrastructureFault."""
        _ = self.zygote

    def private_folder(self, folder: Path) -> Path:
        """Makes the folder in which one kernel is built and run, for nobody else to look into."""
        return self.zygote.private_folder(folder)

    def session(self, folder: Path, *, gpu: bool, deadline: float, cancelled: Callable[[], bool]) -> Session:
        """A fresh runner in a private folder, a builder without `gpu`. `deadline` is by time.monotonic()."""
        try:
            return self._session(folder, gpu, deadline, cancelled)
        except InfrastructureFault:
            self._discard()
            raise

    @contextmanager
    def job_folder(self) -> Iterator[Path]:
        """A folder for one job's files; gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder))
        allow_traversal(folder)
        try:
            yield folder
        finally:
            for private in folder.iterdir():
                remove(private)
            remove(folder)

    def close(self) -> None:
        """Ends the zygote and every runner, removes the folder."""
        self._discard()
        self._compilers.close()
        self._own_folder.close()
        self.register.close()

    def _session(self, folder: Path, gpu: bool, deadline: float, cancelled: Callable[[], bool]) -> Session:
        runner = self.zygote.runner(folder, gpu=gpu, deadline=deadline, cancelled=cancelled)
        return Session(runner, self.target, self.arena_memory)

    def _discard(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


def deadline_in(seconds: float) -> float:
    """That many seconds from now, by time.monotonic()."""
    return time.monotonic() + seconds
