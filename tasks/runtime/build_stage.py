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
from tasks.builds.build_session import BuildBench, deadline_in
from tasks.builds.local_cache import BuildCache
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.kernel_run import KernelRun, Stopped

HIT, MISS, OFF, REMOTE_HIT = "hit", "miss", "off", "remote_hit"


class Building:
    """The builds of one request.

    If another job is building the same source, this one waits for it, at most for its own build time, and then builds
    itself. Waiting does not count as build time.
    """

    def __init__(self, bench: BuildBench, request: Request, cancelled: Callable[[], bool]) -> None:
        self._bench = bench
        self._timeout: float = request.build_seconds
        self._left: float = self._timeout
        self._patience: float = self._timeout
        self._own_timeout = request.build_timeout is not None
        self._cancelled = cancelled

    def build_all(self, contenders: Iterable[KernelRun]) -> None:
        """Builds every kernel, also after one has failed; raises Stopped if any did."""
        failed: Stopped | None = None
        for contender in contenders:
            started, patience = time.monotonic(), self._patience
            try:
                with contender.attribute_faults():
                    self._build_in_time(contender)
            except Stopped as stopped:
                failed = stopped
            finally:
                contender.close()
                contender.build_s = time.monotonic() - started - (patience - self._patience)
        if failed is not None:
            raise failed

    def _build_in_time(self, contender: KernelRun) -> None:
        try:
            self.build(contender)
        except KernelFault as fault:
            if fault.status is not Status.TIMEOUT or not self._own_timeout:
                raise
            message = f"timed out: building took more than its {self._timeout:g} s; raise `build_timeout`"
            raise KernelFault(Status.TIMEOUT, message, fault.log) from fault

    def build(self, contender: KernelRun) -> None:
        """Restores or builds one kernel. Raises KernelFault for an error of the source."""
        cache = self._bench.builds
        if cache is None:
            contender.origin["compile_cache"] = OFF
            self._compile(contender)
            return
        key, shipped = self._bench.build_key(contender.kernel), self._bench.shipped
        began = time.monotonic()
        with cache.build_lock(key, self._cancelled, self._patience):
            self._count_wait(began)
            cached = cache.restore(key, contender.folder)
            if cached is not None:
                contender.origin["compile_cache"] = HIT
                self._use(contender, cached)
            elif shipped is None:
                contender.origin["compile_cache"] = MISS
                self.build_and_store(contender, cache, key)
            else:
                began = time.monotonic()
                with shipped.reserve(key, self._cancelled, deadline_in(self._patience)) as entry:
                    self._count_wait(began)
                    self._use_shared_or_build(contender, cache, key, entry.packed)

    def _count_wait(self, began: float) -> None:
        self._patience -= time.monotonic() - began

    def build_and_store(self, contender: KernelRun, cache: BuildCache, key: str, *, faults: bool = True) -> None:
        """Builds one kernel and stores the build for later jobs: of this node, and of all nodes that share builds.

        Raises KernelFault for an error of the source; with `faults` that error is stored, too.
        """
        try:
            self._compile(contender)
        except KernelFault as fault:
            contender.close()
            if faults and _would_fail_again(fault):
                with suppress(KernelFault):  # `seal` raises it for a folder that is too large: then nothing is stored.
                    contender.seal()
                    self._store(contender, cache, key, None, _without_paths(fault, contender))
            raise
        finally:
            self._note_builder(contender, self._bench.name)
        if contender.artifact.deferred is None:
            artifact = contender.artifact
            text = without_machine_paths(artifact.log, contender.folder)
            self._store(contender, cache, key, dataclasses.replace(artifact, log=text), None)

    def _use_shared_or_build(self, contender: KernelRun, cache: BuildCache, key: str, packed: bytes | None) -> None:
        """Uses the build that another node shared; builds here if there is none, or if anything is wrong with it."""
        cached, shipped = None, self._bench.shipped
        if shipped is not None and packed is not None and shipped.receive(key, packed, cache):
            cached = cache.restore(key, contender.folder)
        contender.origin["compile_cache"] = MISS if cached is None else REMOTE_HIT
        if cached is None:
            self.build_and_store(contender, cache, key)
        else:
            self._use(contender, cached)

    def _store(
        self, contender: KernelRun, cache: BuildCache, key: str, artifact: Artifact | None, fault: KernelFault | None
    ) -> None:
        finished = Finished(artifact, fault, contender.output, time.time(), self._bench.name)
        stored = cache.store(key, contender.folder, contender.sealed, finished)
        if stored and self._bench.shipped is not None:
            self._bench.shipped.ship(key, cache.archive(key), fault=fault is not None)

    def _use(self, contender: KernelRun, cached: Finished) -> None:
        contender.output = cached.output
        if cached.artifact is not None:
            contender.artifact = cached.artifact
            contender.compiled = True
            contender.facts |= cached.artifact.facts
        self._note_builder(contender, cached.by)
        if cached.fault is not None:
            raise cached.fault
        contender.seal()

    def _note_builder(self, contender: KernelRun, name: str) -> None:
        """Records which node made the build, if nodes share builds."""
        if self._bench.shipped is not None:
            contender.origin["built_by"] = name

    def _compile(self, contender: KernelRun) -> None:
        """Compiles in a builder, which sees no GPU. Both kernels of a job share one build time."""
        began = time.monotonic()
        try:
            contender.session = self._bench.session(
                contender.folder, gpu=False, deadline=deadline_in(self._left), cancelled=self._cancelled
            )
            contender.artifact = contender.session.build(contender.kernel)
            contender.compiled = contender.artifact.deferred is None
            contender.facts |= contender.artifact.facts
            contender.close()  # Before it is sealed, so that no process can still write into its folder.
            contender.seal()
        finally:
            self._left -= time.monotonic() - began


def _would_fail_again(fault: KernelFault) -> bool:
    return fault.status in CACHEABLE_FAULTS and not may_pass_again(f"{fault.message}\n{fault.log}")


def _without_paths(fault: KernelFault, contender: KernelRun) -> KernelFault:
    message, text = (without_machine_paths(each, contender.folder) for each in (fault.message, fault.log))
    return KernelFault(fault.status, message, text, compiled=fault.compiled)
