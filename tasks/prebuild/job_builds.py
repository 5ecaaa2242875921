"""Makes the builds of queued jobs in a pool child of a build-only worker, and shares them.

It changes no job: a worker makes every build itself that is not there.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from redis import Redis

from backends.base import Target
from backends.languages import registry
from domain.fault import KernelFault
from domain.kernel import JITTED, Kernel
from domain.request import Request
from tasks.builds.build_session import BuildSession
from tasks.builds.local_cache import BuildCache
from tasks.builds.shared_cache import SharedBuilds
from tasks.jobs.job_queue import JobQueue
from tasks.node.device_info import CPU_ONLY
from tasks.node.log_config import about
from tasks.node.toolchain import missing_driver
from tasks.runtime.build_stage import Building
from tasks.runtime.kernel_run import KernelRun

log = logging.getLogger(__name__)


class JobBuilder:
    """Builds what jobs need, for the targets that workers announced. `close` ends all its processes."""

    def __init__(self, redis: Redis, name: str) -> None:
        """`name` identifies the maker of the builds. Raises ValueError if builds are neither cached nor shared."""
        self._name = name
        self._queue = JobQueue(redis)
        self._sessions: dict[str, BuildSession] = {}
        self._foreign_toolchains: set[str] = set()
        session = self.session(CPU_ONLY)
        if session.builds is None or session.shared is None:
            raise ValueError("a build-only worker needs both build caches")
        self._toolchain = session.toolchain
        self._cache: BuildCache = session.builds
        self._shared: SharedBuilds = session.shared

    def build(self, job_id: str) -> int:
        """Make the builds of a job that are missing; returns their number.

        Raises RedisError, InfrastructureFault, or ValueError for an unreadable request.
        """
        with about(job_id=job_id):
            request = self._queue.request(job_id)
            if request is None:
                return 0
            return sum(self._build_for(arch, request) for arch in self._archs(request))

    def session(self, arch: str) -> BuildSession:
        """The build session for an architecture, made on first use."""
        if arch not in self._sessions:
            target = Target(CPU_ONLY, None) if arch == CPU_ONLY else Target("cuda:0", arch)
            self._sessions[arch] = BuildSession(target, self._name)
        return self._sessions[arch]

    def close(self) -> None:
        """End all processes and remove all folders."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def _archs(self, request: Request) -> list[str]:
        """The architectures of the workers that may run the job and have the compilers of this node."""
        targets = [one for one in self._shared.targets() if request.gpu in (None, one.gpu_model)]
        foreign = {one.toolchain for one in targets if one.toolchain != self._toolchain} - self._foreign_toolchains
        if foreign:
            self._foreign_toolchains |= foreign
            message = "workers with other compilers or packages (%s) than this node (%s) cannot use its builds"
            log.warning(f"{message}: run both from one image", ", ".join(sorted(foreign)), self._toolchain)
        return sorted({one.arch for one in targets if one.toolchain == self._toolchain})

    def _build_for(self, arch: str, request: Request) -> int:
        session = self.session(arch)
        session.start_zygote()
        building = Building(session, request, lambda: False)
        return sum(self._build_missing(session, building, kernel) for kernel in request.kernels.values())

    def _build_missing(self, session: BuildSession, building: Building, kernel: Kernel) -> bool:
        """Build a kernel, unless its build is shared or another process makes it; returns whether it was built."""
        if session.target.is_cuda and _launches_triton(kernel) and missing_driver() is not None:
            # Without the driver, the first call would compile the rest while the job holds its device.
            log.info("no triton kernel is built here: %s (see docs/operations.md)", missing_driver())
            return False
        key = building.build_key(kernel)
        if self._shared.contains(key):
            if kernel.is_reference and session.target.is_cuda:
                self._learn_inputs(session, building, kernel)
            return False
        with self._cache.build_lock(key, lambda: False, patience=0.0) as is_mine:
            if is_mine:
                self._build(session, building, kernel, key)
        return is_mine

    def _learn_inputs(self, session: BuildSession, building: Building, kernel: Kernel) -> None:
        """Has `building` read a reference's build, on which the candidate's depends."""
        with session.job_folder() as folder, suppress(KernelFault):
            building.build(KernelRun("kernel", kernel, session.private_folder(folder / "build")))

    def _build(self, session: BuildSession, building: Building, kernel: Kernel, key: str) -> None:
        began, ended = time.monotonic(), "built"
        with session.job_folder() as folder:
            kernel_run = KernelRun("kernel", kernel, session.private_folder(folder / "build"))
            if self._cache.restore(key, kernel_run.folder) is not None:
                self._shared.share(key, self._cache.archive(key))
                return
            # A source may fail here only because there is no driver; what NVRTC rejects, it rejects everywhere.
            is_certain = not session.target.is_cuda or not kernel.has_host_code
            try:
                building.build_and_store(kernel_run, self._cache, key, faults=is_certain)
            except KernelFault as fault:
                ended = fault.status.value
            finally:
                kernel_run.close()
        arch, took_s = session.target.arch or CPU_ONLY, time.monotonic() - began
        log.info("build %s: %s %s for %s in %.1f s", key, kernel.kernel_type, ended, arch, took_s)


def _launches_triton(kernel: Kernel) -> bool:
    source = kernel.source_code
    return kernel.kernel_type in JITTED or "triton" in source or registry.launches_triton(source)
