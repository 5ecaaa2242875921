"""A build-only worker, `python -m tasks.prebuild.prebuilder NAME`: builds what queued jobs will want, and ships it.

It has no part in what becomes of a job, and needs no GPU: whatever it does not do, whoever judges does himself.
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
from tasks.builds.build_session import BuildBench
from tasks.fleet.heartbeat import workers
from tasks.fleet.prebuilder_registry import BuilderHeartbeat
from tasks.jobs.job_store import JobRecords
from tasks.node import log_config
from tasks.node.device_info import CPU_ONLY
from tasks.node.log_config import about
from tasks.node.periodic_thread import Loop
from tasks.node.redis_client import connect
from tasks.node.sandbox_preflight import held
from tasks.node.toolchain import without_driver
from tasks.prebuild.plan import LookAhead, Wanted, kernels_of
from tasks.runtime.build_stage import Building
from tasks.runtime.kernel_run import KernelRun

LOOK_S = 0.25
PAUSE_S = 5.0
"""After a failure of its own, or of Redis."""

AGAIN_S = 60.0
"""What it has just made it does not make again, where there was no room to keep it."""

ASK_S = 1.0
"""How often it looks whether anybody still wants what it builds."""

STOP_S = 4.0
"""For the build that it is at when it is asked to stop; less than `stack.supervisor` gives."""

log = logging.getLogger(__name__)


class Builder:
    """One build at a time. `look` does one pass; `run` goes on until `stop`."""

    def __init__(self, redis: Redis, name: str, layers: Layers) -> None:
        self._redis = redis
        self._name = name
        self._own = ExitStack()
        self._benches: dict[str, BuildBench] = {}
        self._stopped_at: float | None = None
        self._recent: dict[str, float] = {}
        self._strangers: set[str] = set()
        first = self._bench(settings().build_for[0] if settings().build_for else CPU_ONLY)
        if first.shipped is None:
            raise SystemExit("there is nowhere to put builds: set SHARED_BUILDS_MIB, here and for the workers")
        self._toolchain, self._shipped = first.toolchain, first.shipped
        self._ahead = LookAhead(redis, JobRecords(redis, settings().job_ttl).lines, self._key)
        self._heartbeat = BuilderHeartbeat(redis, name, self._toolchain, layers)
        self._built = 0
        self._builds_for: list[str] | None = None

    def run(self) -> None:
        """Until it is stopped. Leaves nothing behind."""
        log.info("builder %s: toolchain %s", self._name, self._toolchain)
        self._heartbeat.start()
        try:
            while self._stopped_at is None:
                self._rest(self._turn())
        finally:
            try:
                self._heartbeat.stop()
            except RedisError as error:
                log.warning("this builder counts as alive for some seconds more: %s", error)
            self._own.close()

    def stop(self) -> None:
        """Take up nothing new; what is being built has STOP_S. For a signal handler, so it takes no lock."""
        self._stopped_at = self._stopped_at or time.monotonic()

    def look(self) -> bool:
        """One pass: the first build that is lacking; False where none is. Raises RedisError, InfrastructureFault."""
        if self._shipped.paused:
            return False
        judges = workers(self._redis)
        archs = self._archs({worker.name: (worker.arch, worker.toolchain) for worker in judges})
        wanted = [one for one in self._ahead.wanted(archs, judges) if not self._just_made(one.key)]
        lacking = set(self._shipped.missing([one.key for one in wanted]))
        for one in wanted:
            with about(job_id=one.job_id):
                if one.key in lacking and self._make(one):
                    return True
        return False

    def _turn(self) -> float:
        """Seconds until the next one."""
        try:
            return 0.0 if self.look() else LOOK_S
        except JobCancelled:
            return 0.0
        except RedisError as error:
            log.warning("the queue cannot be looked at, trying on: %s", error)
        except Exception:
            log.exception("a build failed by no fault of its source, trying on")
        return PAUSE_S

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._stopped_at is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))

    def _archs(self, judges: dict[str, tuple[str | None, str | None]]) -> list[str]:
        """Those of BUILD_FOR, else of the judges whose compilers are alike."""
        for name, (arch, toolchain) in judges.items():
            if toolchain not in (None, self._toolchain) and name not in self._strangers:
                self._strangers.add(name)
                told = "%s (%s) has other compilers or packages, %s: it can use nothing of what is built here"
                log.warning(told, name, arch, toolchain)
        alike = {arch for arch, toolchain in judges.values() if arch is not None and toolchain == self._toolchain}
        archs = list(settings().build_for) or sorted(alike)
        if archs != self._builds_for:
            log.info("builder %s: builds for %s", self._name, ", ".join(archs) or "nobody, as no worker asks for it")
            for arch in archs:
                self._bench(arch).start_zygote()
            self._builds_for = archs
            left_out = without_driver() if archs and archs != [CPU_ONLY] else None
            if left_out is not None:
                left_out = f"triton: {left_out}"
                log.warning("builder %s: leaves out %s (docs/operations.md says what helps)", self._name, left_out)
            self._heartbeat.tell(builds_for=archs, left_out=left_out)
        return archs

    def _make(self, one: Wanted) -> bool:
        """Whether it was this builder's turn to make it."""
        request = self._ahead.request(one.job_id)
        if request is None:
            return False
        bench = self._bench(one.arch)
        bench.start_zygote()
        with self._shipped.turn(one.key, self._given_up, time.monotonic()) as turn:
            if turn.mine:
                self._recent[one.key] = time.monotonic()
                self._heartbeat.tell(building=one.job_id)
                try:
                    self._build(bench, request, kernels_of(request)[one.kernel], one)
                except JobCancelled:
                    del self._recent[one.key]
                    raise
                finally:
                    shipped = sum(each.shipped.count for each in self._benches.values() if each.shipped is not None)
                    self._heartbeat.tell(building=None, built=self._built, shipped=shipped)
            return turn.mine

    def _build(self, bench: BuildBench, request: Request, kernel: Kernel, one: Wanted) -> None:
        """Into the store, unless it comes to nothing that is kept. Raises JobCancelled where it is given up."""
        cache, shipped, key = bench.builds, bench.shipped, one.key
        if cache is None or shipped is None:
            raise ValueError("a builder keeps and ships its builds")
        bench.ready_compilers([kernel])
        began = time.monotonic()
        with bench.job_folder() as folder:
            contender = KernelRun("kernel", kernel, bench.private_folder(folder / "build"))
            kept = cache.restore(key, contender.folder)
            if kept is not None:
                shipped.ship(key, cache.archive(key), fault=kept.fault is not None)
                return
            ended = "built"
            # With a driver a source may compile that does not here; what NVRTC refuses it refuses everywhere.
            certain = not bench.target.is_cuda or kernel.kernel_type is KernelType.CUDA
            try:
                with self._while_wanted(one) as given_up:
                    Building(bench, request, given_up).build_and_store(contender, cache, key, faults=certain)
            except KernelFault as fault:
                ended = fault.status.value
            finally:
                contender.close()
        self._built += 1
        took, arch = time.monotonic() - began, bench.target.arch or CPU_ONLY
        log.info("build %s: %s %s for %s in %.1f s", key, kernel.kernel_type, ended, arch, took)

    @contextmanager
    def _while_wanted(self, one: Wanted) -> Iterator[Callable[[], bool]]:
        """For who builds: whether that is to be given up, as nobody wants it any more or this builder is to end."""
        unwanted = Event()

        def look() -> None:
            gone = self._ahead.gone(one, self._builds_for or [], workers(self._redis))
            if gone and not self._shipped.waited_for(one.key):
                unwanted.set()

        looking = Loop("look for who wants a build", look, ASK_S)
        looking.start()
        try:
            yield lambda: unwanted.is_set() or self._given_up()
        except JobCancelled:
            log.info("build %s: given up%s", one.key, ", as nobody wants it any more" if unwanted.is_set() else "")
            raise
        finally:
            looking.stop()

    def _given_up(self) -> bool:
        return self._stopped_at is not None and time.monotonic() - self._stopped_at > STOP_S

    def _just_made(self, key: str) -> bool:
        now = time.monotonic()
        self._recent = {each: at for each, at in self._recent.items() if now - at < AGAIN_S}
        return key in self._recent

    def _key(self, kernel: Kernel, arch: str) -> str | None:
        if arch != CPU_ONLY and kernel.kernel_type is KernelType.TRITON and without_driver() is not None:
            return None  # The first call would compile the rest, while the job holds its device.
        return self._bench(arch).build_key(kernel)

    def _bench(self, arch: str) -> BuildBench:
        if arch not in self._benches:
            target = Target(CPU_ONLY, None) if arch == CPU_ONLY else Target("cuda:0", arch)
            self._benches[arch] = BuildBench(target, self._name)
            self._own.callback(self._benches[arch].close)
        return self._benches[arch]


def main() -> None:
    log_config.set_up(settings().log_level, settings().log_format)
    name = f"{sys.argv[1]}@{socket.gethostname()}"
    log_config.process_fields["worker"] = name
    layers = held(gpu=False)
    for layer, how in layers.items():
        log.log(logging.INFO if how.active else logging.WARNING, "sandbox: %s", how.line(layer))
    builder = Builder(connect(), name, layers)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: builder.stop())
    builder.run()


if __name__ == "__main__":
    main()
