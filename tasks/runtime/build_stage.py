"""Builds a job's kernels: restores them from the build cache, or compiles them in a builder and stores them there.

Jobs with the same source at the same time build it once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from backends.base import Artifact
from domain.fault import KernelFault
from domain.request import Request
from domain.result import Status
from sandbox.supervisor.machine_faults import may_pass_again
from tasks.builds.archive import CACHEABLE_FAULTS, Finished
from tasks.builds.build_session import BuildSession, deadline_in
from tasks.builds.local_cache import BuildCache
from tasks.builds.shared_cache import SharedBuilds
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.kernel_run import KernelRun, Stopped

HIT, MISS, OFF, REMOTE_HIT = "hit", "miss", "off", "remote_hit"


class Building:
    """The builds of one request.

    If another job is building the same source, this one waits for it, at most for its own build time, and then builds
    itself. Waiting does not count as build time.
    """

    def __init__(self, build_session: BuildSession, request: Request, cancelled: Callable[[], bool]) -> None:
        self._build_session = build_session
        self._timeout: float = request.build_seconds
        self._left: float = self._timeout
        self._patience: float = self._timeout
        self._own_timeout = request.build_timeout is not None
        self._cancelled = cancelled

    def build_all(self, kernel_runs: Iterable[KernelRun]) -> None:
        """Builds every kernel, also after one has failed; raises Stopped if any did."""
        failed: Stopped | None = None
        for kernel_run in kernel_runs:
            started, patience = time.monotonic(), self._patience
            try:
                with kernel_run.attribute_faults():
                    self._build_in_time(kernel_run)
            except Stopped as stopped:
                failed = stopped
            finally:
                kernel_run.close()
                kernel_run.build_s = time.monotonic() - started - (patience - self._patience)
        if failed is not None:
            raise failed

    def _build_in_time(self, kernel_run: KernelRun) -> None:
        try:
            self.build(kernel_run)
        except KernelFault as fault:
            if fault.status is not Status.TIMEOUT or not self._own_timeout:
                raise
            message = f"timed out: building took more than its {self._timeout:g} s; raise `build_timeout`"
            raise KernelFault(Status.TIMEOUT, message, fault.log) from fault

    def build(self, kernel_run: KernelRun) -> None:
        """Restores or builds one kernel. Raises KernelFault for an error of the source."""
        cache = self._build_session.builds
        if cache is None:
            kernel_run.origin["compile_cache"] = OFF
            self._compile(kernel_run)
            return
        key, shared = self._build_session.build_key(kernel_run.kernel), self._build_session.shared
        began = time.monotonic()
        with cache.build_lock(key, self._cancelled, self._patience):
            self._count_wait(began)
            cached = cache.restore(key, kernel_run.folder)
            if cached is not None:
                kernel_run.origin["compile_cache"] = HIT
                self._use(kernel_run, cached)
            elif shared is None:
                kernel_run.origin["compile_cache"] = MISS
                self.build_and_store(kernel_run, cache, key)
            else:
                began = time.monotonic()
                with shared.reserve(key, self._cancelled, deadline_in(self._patience)) as entry:
                    self._count_wait(began)
                    self._use_shared_or_build(kernel_run, cache, shared, key, entry.packed)

    def _count_wait(self, began: float) -> None:
        self._patience -= time.monotonic() - began

    def build_and_store(self, kernel_run: KernelRun, cache: BuildCache, key: str, *, faults: bool = True) -> None:
        """Builds one kernel and stores the build for later jobs: of this node, and of all nodes that share builds.

        Raises KernelFault for an error of the source; with `faults` that error is stored, too.
        """
        try:
            self._compile(kernel_run)
        except KernelFault as fault:
            kernel_run.close()
            if faults and _would_fail_again(fault):
                with suppress(KernelFault):  # `seal` raises it for a folder that is too large: then nothing is stored.
                    kernel_run.seal()
                    self._cache_build(kernel_run, cache, key, None, _without_paths(fault, kernel_run))
            raise
        finally:
            self._note_builder(kernel_run, self._build_session.name)
        if kernel_run.artifact.deferred is None:
            artifact = kernel_run.artifact
            text = without_machine_paths(artifact.log, kernel_run.folder)
            self._cache_build(kernel_run, cache, key, dataclasses.replace(artifact, log=text), None)

    def _use_shared_or_build(
        self, kernel_run: KernelRun, cache: BuildCache, shared: SharedBuilds, key: str, packed: bytes | None
    ) -> None:
        """Uses the build that another node shared; builds here if there is none, or if anything is wrong with it."""
        cached = None
        if packed is not None and shared.receive(key, packed, cache):
            cached = cache.restore(key, kernel_run.folder)
        kernel_run.origin["compile_cache"] = MISS if cached is None else REMOTE_HIT
        if cached is None:
            shared.announce(self._build_session.own_target)
            self.build_and_store(kernel_run, cache, key)
        else:
            self._use(kernel_run, cached)

    def _cache_build(
        self, kernel_run: KernelRun, cache: BuildCache, key: str, artifact: Artifact | None, fault: KernelFault | None
    ) -> None:
        finished = Finished(artifact, fault, kernel_run.output, time.time(), self._build_session.name)
        stored = cache.store(key, kernel_run.folder, kernel_run.sealed, finished)
        if stored and self._build_session.shared is not None:
            self._build_session.shared.share(key, cache.archive(key))

    def _use(self, kernel_run: KernelRun, cached: Finished) -> None:
        kernel_run.output = cached.output
        if cached.artifact is not None:
            kernel_run.artifact = cached.artifact
            kernel_run.compiled = True
            kernel_run.facts |= cached.artifact.facts
        self._note_builder(kernel_run, cached.by)
        if cached.fault is not None:
            raise cached.fault
        kernel_run.seal()

    def _note_builder(self, kernel_run: KernelRun, name: str) -> None:
        """Records which node made the build, if nodes share builds."""
        if self._build_session.shared is not None:
            kernel_run.origin["built_by"] = name

    def _compile(self, kernel_run: KernelRun) -> None:
        """Compiles in a builder, which sees no GPU. Both kernels of a job share one build time."""
        began = time.monotonic()
        try:
            kernel_run.session = self._build_session.session(
                kernel_run.folder, gpu=False, deadline=deadline_in(self._left), cancelled=self._cancelled
            )
            kernel_run.artifact = kernel_run.session.build(kernel_run.kernel)
            kernel_run.compiled = kernel_run.artifact.deferred is None
            kernel_run.facts |= kernel_run.artifact.facts
            kernel_run.close()  # Before it is sealed, so that no process can still write into its folder.
            kernel_run.seal()
        finally:
            self._left -= time.monotonic() - began


def _would_fail_again(fault: KernelFault) -> bool:
    return fault.status in CACHEABLE_FAULTS and not may_pass_again(f"{fault.message}\n{fault.log}")


def _without_paths(fault: KernelFault, kernel_run: KernelRun) -> KernelFault:
    message, text = (without_machine_paths(each, kernel_run.folder) for each in (fault.message, fault.log))
    return KernelFault(fault.status, message, text, compiled=fault.compiled)
