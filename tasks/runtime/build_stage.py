"""Builds a job's kernels: restores them from the build cache, or compiles them in a builder and stores them there.

Jobs with the same source at the same time build it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from backends.base import Artifact, Task
from backends.dry_run.child import COMPLETED, STOPPED
from backends.dry_run.example import UNKNOWN, may_compile
from domain.fault import KernelFault, may_pass_again
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.kernel import Kernel
from domain.request import Request
from domain.result import Status
from domain.settings import settings
from tasks.builds.archive import CACHEABLE_FAULTS, Finished
from tasks.builds.build_session import BuildSession, deadline_in
from tasks.builds.local_cache import BuildCache
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.kernel_run import Build, KernelRun, Stopped

DRY_RUN_SHARE = 0.8
"""The part of the build's time and memory that a dry run may take: what it does not compile, the run compiles."""
MAX_CHARS = 300
"""Maximum characters of a dry run's reason, and of what it compiled, that a flag quotes."""
HIT, MISS, OFF, REMOTE_HIT = "hit", "miss", "off", "remote_hit"


@dataclass
class _Making:
    """A build on its way: what is known of it so far."""

    kernel_run: KernelRun
    artifact: Artifact | None = None
    origin: dict[str, Any] = field(default_factory=dict)

    def build(self, seconds: float) -> Build:
        if self.artifact is None:
            return Build(seconds=seconds, origin=self.origin)
        return Build(self.artifact, self.artifact.deferred is None, seconds, self.origin)


class Building:
    """The builds of one request.

    If another job is building the same source, this one waits for it, at most for its own build time, and then builds
    itself. Waiting does not count as build time. The candidate's build gets the inputs that the reference's found.
    """

    def __init__(self, build_session: BuildSession, request: Request, cancelled: Callable[[], bool]) -> None:
        self._build_session = build_session
        self._timeout: float = request.build_seconds
        self._left: float = self._timeout
        self._patience: float = self._timeout
        self._own_timeout = request.build_timeout is not None
        self._example: Any = UNKNOWN if request.reference is not None else None
        self._gradients = request.gradients
        self._gpu_building: Building | None = None
        if build_session.gpu_session is not None:
            self._gpu_building = Building(build_session.gpu_session, request, cancelled)
        self._cancelled = cancelled

    def build_all(self, kernel_runs: Iterable[KernelRun]) -> None:
        """Builds every kernel, also after one has failed; raises Stopped if any did."""
        failed: Stopped | None = None
        for kernel_run in kernel_runs:
            try:
                with kernel_run.attribute_faults():
                    self._build_in_time(kernel_run)
            except Stopped as stopped:
                failed = stopped
        if failed is not None:
            raise failed

    def _build_in_time(self, kernel_run: KernelRun) -> None:
        try:
            self.build(kernel_run)
            if self._gpu_building is not None:
                self._gpu_building.check(kernel_run)
        except KernelFault as fault:
            if fault.status is not Status.TIMEOUT or not self._own_timeout:
                raise
            message = f"timed out: building took more than its {self._timeout:g} s; raise `build_timeout`"
            raise KernelFault(Status.TIMEOUT, message, fault.log) from fault

    def build(self, kernel_run: KernelRun) -> None:
        """Restores or builds one kernel and records the build. Raises KernelFault for an error of the source."""
        making, began, patience = _Making(kernel_run), time.monotonic(), self._patience
        try:
            self._restore_or_build(making)
        finally:
            kernel_run.close()
            kernel_run.build = making.build(time.monotonic() - began - (patience - self._patience))

    def check(self, kernel_run: KernelRun) -> None:
        """Compiles a kernel that runs elsewhere for this session's GPU. Raises KernelFault for what a compiler refuses.

        Any other end of this build is no fault, because the kernel does not run on that GPU.
        """
        kernel, session = kernel_run.kernel, self._build_session
        if not kernel.is_reference and not may_compile(kernel):
            return
        session.start_zygote()
        with session.job_folder() as folder:
            build_run = KernelRun(kernel_run.role, kernel, session.private_folder(folder / "build"))
            try:
                self.build(build_run)
                found = _told_of_dry_run(build_run)
            except KernelFault as fault:
                if fault.status is Status.COMPILE_ERROR:
                    raise KernelFault(fault.status, f"for {session.target.arch}: {fault.message}", fault.log) from fault
                found = {"ended": STOPPED, "reason": fault.message}
        if may_compile(kernel):
            kernel_run.build.origin["compiled_for"] = {**found, "arch": session.target.arch}

    def _restore_or_build(self, making: _Making) -> None:
        cache, kernel_run = self._build_session.builds, making.kernel_run
        if cache is None:
            making.origin["compile_cache"] = OFF
            self._compile(making)
            return
        key, shared = self.build_key(kernel_run.kernel), self._build_session.shared
        began = time.monotonic()
        with cache.build_lock(key, self._cancelled, self._patience):
            self._patience -= time.monotonic() - began
            cached, origin = cache.restore(key, kernel_run.folder), HIT
            if cached is None and shared is not None and shared.fetch(key, cache):
                cached, origin = cache.restore(key, kernel_run.folder), REMOTE_HIT
            making.origin["compile_cache"] = origin if cached is not None else MISS
            if cached is not None:
                self._use(making, cached)
                return
            if shared is not None:
                shared.announce(self._build_session.own_target)
            self._build_and_store(making, cache, key)

    def build_key(self, kernel: Kernel) -> str:
        """The key of this kernel's build, for the reference that was built before it."""
        example, gradients = self._told_for(kernel)
        return self._build_session.build_key(kernel, example, gradients=gradients)

    def _told_for(self, kernel: Kernel) -> tuple[Any, bool]:
        return self._build_session.told_for(kernel, self._example, self._gradients)

    def _finish(self, making: _Making, artifact: Artifact | None) -> None:
        making.artifact = artifact
        if artifact is not None and making.kernel_run.kernel.is_reference:
            self._example = artifact.example or UNKNOWN

    def build_and_store(self, kernel_run: KernelRun, cache: BuildCache, key: str, *, faults: bool = True) -> None:
        """Builds one kernel and stores the build for later jobs: of this node, and of all nodes that share builds.

        Raises KernelFault for an error of the source; with `faults` that error is stored, too.
        """
        self._build_and_store(_Making(kernel_run), cache, key, faults=faults)

    def _build_and_store(self, making: _Making, cache: BuildCache, key: str, *, faults: bool = True) -> None:
        kernel_run = making.kernel_run
        try:
            artifact = self._compile(making)
        except KernelFault as fault:
            kernel_run.close()
            if faults and _would_fail_again(fault):
                with suppress(KernelFault):  # `seal` raises it for a folder that is too large: then nothing is stored.
                    kernel_run.seal()
                    self._cache_build(kernel_run, cache, key, None, _without_paths(fault, kernel_run))
            raise
        finally:
            self._note_builder(making, self._build_session.name)
        if artifact.deferred is None:
            text = without_machine_paths(artifact.log, kernel_run.folder)
            self._cache_build(kernel_run, cache, key, replace(artifact, log=text), None)

    def _cache_build(
        self, kernel_run: KernelRun, cache: BuildCache, key: str, artifact: Artifact | None, fault: KernelFault | None
    ) -> None:
        finished = Finished(artifact, fault, kernel_run.output, time.time(), self._build_session.name)
        stored = cache.store(key, kernel_run.folder, kernel_run.sealed, finished)
        if stored and self._build_session.shared is not None:
            self._build_session.shared.share(key, cache.archive(key))

    def _use(self, making: _Making, cached: Finished) -> None:
        making.kernel_run.output = cached.output
        self._finish(making, cached.artifact)
        self._note_builder(making, cached.by)
        if cached.fault is not None:
            raise cached.fault
        making.kernel_run.seal()

    def _note_builder(self, making: _Making, name: str) -> None:
        """Records which node made the build, if nodes share builds."""
        if self._build_session.shared is not None:
            making.origin["built_by"] = name

    def _compile(self, making: _Making) -> Artifact:
        """Compiles in a builder, which sees no GPU. Both kernels of a job share one build time."""
        began, kernel_run = time.monotonic(), making.kernel_run
        try:
            kernel_run.session = self._build_session.session(
                kernel_run.folder, gpu=False, deadline=deadline_in(self._left), cancelled=self._cancelled
            )
            memory = int(settings().runner_memory * DRY_RUN_SHARE)
            told = self._told_for(kernel_run.kernel)
            task = Task(*told, self._left * DRY_RUN_SHARE, memory)
            artifact = kernel_run.session.build(kernel_run.kernel, task)
            self._finish(making, artifact)
            kernel_run.close()  # Before it is sealed, so that no process can still write into its folder.
            kernel_run.seal()
            return artifact
        finally:
            self._left -= time.monotonic() - began


def _would_fail_again(fault: KernelFault) -> bool:
    return fault.status in CACHEABLE_FAULTS and not may_pass_again(f"{fault.message}\n{fault.log}")


def _without_paths(fault: KernelFault, kernel_run: KernelRun) -> KernelFault:
    message, text = (without_machine_paths(each, kernel_run.folder) for each in (fault.message, fault.log))
    return KernelFault(fault.status, message, text, compiled=fault.compiled, lacks=fault.lacks)


def _told_of_dry_run(kernel_run: KernelRun) -> dict[str, Any]:
    """What the builder told of its dry run. It has executed the source, which may tell something else instead."""
    told = kernel_run.build.artifact.facts.get("dry_run")
    return told if isinstance(told, dict) else {}


def gpu_build_warning(kernel_run: KernelRun) -> Flag | None:
    """A warning where the build for the GPU of BUILD_FOR ended before the source's call did.

    A source may take another way on a GPU than it took here, and fail there.
    """
    found = kernel_run.build.origin.get("compiled_for", {})
    ended, compiled = str(found.get("ended", COMPLETED)), found.get("compiled")
    if ended == COMPLETED:
        return None
    names = ", ".join(dict.fromkeys(compiled)) if isinstance(compiled, list) and compiled else "nothing"
    reason = str(found.get("reason") or ended).partition("\n")[0]
    message = f"for {found['arch']} {names[:MAX_CHARS]} was compiled before its call ended: {reason[:MAX_CHARS]}"
    return Flag(FlagCode.GPU_BUILD_INCOMPLETE, message, {"arch": found["arch"], "ended": ended})


def not_built_warning(kernel_run: KernelRun) -> Flag | None:
    """A warning where the build of an extension failed, which the source caught, by the runner's word."""
    names = kernel_run.probe.not_built if kernel_run.probe is not None else ()
    if not names:
        return None
    message = f"the build of {', '.join(names)[:MAX_CHARS]} failed, and the source went on without it"
    return Flag(FlagCode.EXTENSION_NOT_BUILT, message, {"extensions": len(names)})
