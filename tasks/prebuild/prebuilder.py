"""A build-only worker, `python -m tasks.prebuild.prebuilder NAME`: builds for queued jobs, and shares the builds.

It does not affect the outcome of a job and needs no GPU: a worker makes every build itself that is not there.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event

from redis import Redis
from redis.exceptions import RedisError

from backends.base import Target
from domain.fault import JobCancelled, KernelFault
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.settings import settings
from sandbox.isolation.layer_probe import Layers
from tasks.builds.build_session import BuildSession
from tasks.fleet.heartbeat import workers
from tasks.fleet.prebuilder_registry import BuilderHeartbeat
from tasks.jobs.job_store import JobStore
from tasks.node import log_config
from tasks.node.device_info import CPU_ONLY
from tasks.node.log_config import about
from tasks.node.periodic_thread import PeriodicThread
from tasks.node.redis_client import connect
from tasks.node.sandbox_preflight import probe_sandbox
from tasks.node.toolchain import missing_driver
from tasks.prebuild.plan import BuildPlan, PlannedBuild, kernels_of
from tasks.runtime.build_stage import Building
from tasks.runtime.kernel_run import KernelRun

LOOK_S = 0.25
PAUSE_S = 5.0
"""Pause after a failure of the builder or of Redis, in s."""

AGAIN_S = 60.0
"""Seconds before the same build is made again, in case there was no room to store it."""

ASK_S = 1.0
"""Interval of checking whether any job still needs the current build, in s."""

STOP_S = 4.0
"""Maximum seconds for the current build after a request to stop; less than `stack.supervisor` allows."""

log = logging.getLogger(__name__)


class Builder:
    """Makes one build at a time. `make_next` does one pass; `run` repeats it until `stop`."""

    def __init__(self, redis: Redis, name: str, layers: Layers) -> None:
        self._redis = redis
        self._name = name
        self._own = ExitStack()
        self._build_sessions: dict[str, BuildSession] = {}
        self._stopped_at: float | None = None
        self._recent: dict[str, float] = {}
        self._foreign_workers: set[str] = set()
        first = self._build_session(settings().build_for[0] if settings().build_for else CPU_ONLY)
        if first.shipped is None:
            raise SystemExit("shared builds are disabled: set SHARED_BUILDS_MIB, here and for the workers")
        self._toolchain, self._shipped = first.toolchain, first.shipped
        self._plan = BuildPlan(redis, JobStore(redis, settings().job_ttl).queue, self._key)
        self._heartbeat = BuilderHeartbeat(redis, name, self._toolchain, layers)
        self._built = 0
        self._builds_for: list[str] | None = None

    def run(self) -> None:
        """Run until stopped; then remove the heartbeat and all folders."""
        log.info("builder %s: toolchain %s", self._name, self._toolchain)
        self._heartbeat.start()
        try:
            while self._stopped_at is None:
                self._sleep(self._run_once())
        finally:
            try:
                self._heartbeat.stop()
            except RedisError as error:
                log.warning("this builder counts as alive for some more seconds: %s", error)
            self._own.close()

    def stop(self) -> None:
        """Start no new build, and give the current one STOP_S. Called by a signal handler, so it takes no lock."""
        self._stopped_at = self._stopped_at or time.monotonic()

    def make_next(self) -> bool:
        """Make the first missing build of the plan; False if none is. Raises RedisError, InfrastructureFault."""
        if self._shipped.paused:
            return False
        judges = workers(self._redis)
        archs = self._archs({worker.name: (worker.arch, worker.toolchain) for worker in judges})
        builds = [one for one in self._plan.builds(archs, judges) if not self._built_recently(one.key)]
        missing = set(self._shipped.missing([one.key for one in builds]))
        for one in builds:
            with about(job_id=one.job_id):
                if one.key in missing and self._make(one):
                    return True
        return False

    def _run_once(self) -> float:
        """Do one pass; returns the seconds until the next one."""
        try:
            return 0.0 if self.make_next() else LOOK_S
        except JobCancelled:
            return 0.0
        except RedisError as error:
            log.warning("the queue cannot be read, retrying: %s", error)
        except Exception:
            log.exception("a build failed by no fault of its source, retrying")
        return PAUSE_S

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._stopped_at is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))

    def _archs(self, judges: dict[str, tuple[str | None, str | None]]) -> list[str]:
        """The architectures of BUILD_FOR, else those of the workers with the same toolchain."""
        for name, (arch, toolchain) in judges.items():
            if toolchain not in (None, self._toolchain) and name not in self._foreign_workers:
                self._foreign_workers.add(name)
                message = "%s (%s) has other compilers or packages, %s: it cannot use builds of this node"
                log.warning(message, name, arch, toolchain)
        supported = {arch for arch, toolchain in judges.values() if arch is not None and toolchain == self._toolchain}
        archs = list(settings().build_for) or sorted(supported)
        if archs != self._builds_for:
            log.info("builder %s: builds for %s", self._name, ", ".join(archs) or "no worker, as none needs builds")
            for arch in archs:
                self._build_session(arch).start_zygote()
            self._builds_for = archs
            limitation = missing_driver() if archs and archs != [CPU_ONLY] else None
            if limitation is not None:
                limitation = f"triton: {limitation}"
                log.warning("builder %s: does not build %s (see docs/operations.md)", self._name, limitation)
            self._heartbeat.update(builds_for=archs, limitation=limitation)
        return archs

    def _make(self, one: PlannedBuild) -> bool:
        """Make a build, unless another builder makes it; returns whether this one did."""
        request = self._plan.request(one.job_id)
        if request is None:
            return False
        build_session = self._build_session(one.arch)
        build_session.start_zygote()
        with self._shipped.reserve(one.key, self._must_stop, time.monotonic()) as reservation:
            if reservation.mine:
                self._recent[one.key] = time.monotonic()
                self._heartbeat.update(building=one.job_id)
                try:
                    self._build(build_session, request, kernels_of(request)[one.kernel], one)
                except JobCancelled:
                    del self._recent[one.key]
                    raise
                finally:
                    shared = sum(
                        other.shipped.count for other in self._build_sessions.values() if other.shipped is not None
                    )
                    self._heartbeat.update(building=None, built=self._built, shared=shared)
            return reservation.mine

    def _build(self, build_session: BuildSession, request: Request, kernel: Kernel, one: PlannedBuild) -> None:
        """Build and ship, unless the result cannot be cached. Raises JobCancelled if the build was abandoned."""
        cache, shipped, key = build_session.builds, build_session.shipped, one.key
        if cache is None or shipped is None:
            raise ValueError("a builder keeps and ships its builds")
        build_session.ready_compilers([kernel])
        began = time.monotonic()
        with build_session.job_folder() as folder:
            kernel_run = KernelRun("kernel", kernel, build_session.private_folder(folder / "build"))
            cached = cache.restore(key, kernel_run.folder)
            if cached is not None:
                shipped.ship(key, cache.archive(key), fault=cached.fault is not None)
                return
            ended = "built"
            # A source may fail here only because there is no driver; what NVRTC rejects, it rejects everywhere.
            certain = not build_session.target.is_cuda or kernel.kernel_type is KernelType.CUDA
            try:
                with self._while_needed(one) as must_stop:
                    Building(build_session, request, must_stop).build_and_store(kernel_run, cache, key, faults=certain)
            except KernelFault as fault:
                ended = fault.status.value
            finally:
                kernel_run.close()
        self._built += 1
        took, arch = time.monotonic() - began, build_session.target.arch or CPU_ONLY
        log.info("build %s: %s %s for %s in %.1f s", key, kernel.kernel_type, ended, arch, took)

    @contextmanager
    def _while_needed(self, one: PlannedBuild) -> Iterator[Callable[[], bool]]:
        """A predicate for the build: whether to abandon it, because no job needs it or this builder must end."""
        unwanted = Event()

        def check() -> None:
            gone = self._plan.gone(one, self._builds_for or [], workers(self._redis))
            if gone and not self._shipped.is_awaited(one.key):
                unwanted.set()

        checker = PeriodicThread("check that a build is needed", check, ASK_S)
        checker.start()
        try:
            yield lambda: unwanted.is_set() or self._must_stop()
        except JobCancelled:
            log.info("build %s: abandoned%s", one.key, ", as no job needs it any more" if unwanted.is_set() else "")
            raise
        finally:
            checker.stop()

    def _must_stop(self) -> bool:
        return self._stopped_at is not None and time.monotonic() - self._stopped_at > STOP_S

    def _built_recently(self, key: str) -> bool:
        now = time.monotonic()
        self._recent = {recent_key: at for recent_key, at in self._recent.items() if now - at < AGAIN_S}
        return key in self._recent

    def _key(self, kernel: Kernel, arch: str) -> str | None:
        if arch != CPU_ONLY and kernel.kernel_type is KernelType.TRITON and missing_driver() is not None:
            return None  # Without the driver, the first call would compile the rest while the job holds its device.
        return self._build_session(arch).build_key(kernel)

    def _build_session(self, arch: str) -> BuildSession:
        if arch not in self._build_sessions:
            target = Target(CPU_ONLY, None) if arch == CPU_ONLY else Target("cuda:0", arch)
            self._build_sessions[arch] = BuildSession(target, self._name)
            self._own.callback(self._build_sessions[arch].close)
        return self._build_sessions[arch]


def main() -> None:
    log_config.set_up(settings().log_level, settings().log_format)
    name = f"{sys.argv[1]}@{socket.gethostname()}"
    log_config.process_fields["worker"] = name
    layers = probe_sandbox(gpu=False)
    for layer, status in layers.items():
        log.log(logging.INFO if status.active else logging.WARNING, "sandbox: %s", status.line(layer))
    builder = Builder(connect(), name, layers)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: builder.stop())
    builder.run()


if __name__ == "__main__":
    main()
