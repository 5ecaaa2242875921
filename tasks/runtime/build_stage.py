"""A contender's build: out of the cache, or by a builder and then into it; many jobs with one source build it once."""

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
from tasks.runtime.kernel_run import Contender, Stopped

HIT, MISS, OFF, REMOTE_HIT = "hit", "miss", "off", "remote_hit"


class Building:
    """The builds of one request.

    What another job is building is waited for as long as that one lives, and as long as building may take here; then it
    is built all the same. Waiting is no building.
    """

    def __init__(self, bench: BuildBench, request: Request, cancelled: Callable[[], bool]) -> None:
        self._bench = bench
        self._timeout: float = request.build_seconds
        self._left: float = self._timeout
        self._patience: float = self._timeout
        self._own_timeout = request.build_timeout is not None
        self._cancelled = cancelled

    def build_all(self, contenders: Iterable[Contender]) -> None:
        """Every one of them, also when one before it failed; raises Stopped if any did."""
        failed: Stopped | None = None
        for contender in contenders:
            started, patience = time.monotonic(), self._patience
            try:
                with contender.answerable():
                    self._build_in_time(contender)
            except Stopped as stopped:
                failed = stopped
            finally:
                contender.close()
                contender.build_s = time.monotonic() - started - (patience - self._patience)
        if failed is not None:
            raise failed

    def _build_in_time(self, contender: Contender) -> None:
        try:
            self.build(contender)
        except KernelFault as fault:
            if fault.status is not Status.TIMEOUT or not self._own_timeout:
                raise
            told = f"timed out: building took more than its {self._timeout:g} s; raise `build_timeout`"
            raise KernelFault(Status.TIMEOUT, told, fault.log) from fault

    def build(self, contender: Contender) -> None:
        """Raises KernelFault for what is the source's fault."""
        cache = self._bench.builds
        if cache is None:
            contender.origin["compile_cache"] = OFF
            self._compile(contender)
            return
        key, shipped = self._bench.build_key(contender.kernel), self._bench.shipped
        began = time.monotonic()
        with cache.build_lock(key, self._cancelled, self._patience):
            self._has_waited(began)
            kept = cache.restore(key, contender.folder)
            if kept is not None:
                contender.origin["compile_cache"] = HIT
                self._take(contender, kept)
            elif shipped is None:
                contender.origin["compile_cache"] = MISS
                self.build_and_keep(contender, cache, key)
            else:
                began = time.monotonic()
                with shipped.reserve(key, self._cancelled, deadline_in(self._patience)) as turn:
                    self._has_waited(began)
                    self._take_or_build(contender, cache, key, turn.packed)

    def _has_waited(self, began: float) -> None:
        self._patience -= time.monotonic() - began

    def build_and_keep(self, contender: Contender, cache: BuildCache, key: str, *, faults: bool = True) -> None:
        """Builds here, for later jobs of this node, and of every node where they share their builds.

        Raises KernelFault for what is the source's fault; that is kept as well, unless `faults` says no.
        """
        try:
            self._compile(contender)
        except KernelFault as fault:
            contender.close()
            if faults and _would_fail_again(fault):
                with suppress(KernelFault):  # Of the folder's size: then this is not kept.
                    contender.seal()
                    self._keep(contender, cache, key, None, _without_paths(fault, contender))
            raise
        finally:
            self._say_who(contender, self._bench.name)
        if contender.artifact.deferred is None:
            artifact = contender.artifact
            text = without_machine_paths(artifact.log, contender.folder)
            self._keep(contender, cache, key, dataclasses.replace(artifact, log=text), None)

    def _take_or_build(self, contender: Contender, cache: BuildCache, key: str, packed: bytes | None) -> None:
        """Of what another node may have shipped. Building here is the answer to all that is wrong with it."""
        kept, shipped = None, self._bench.shipped
        if shipped is not None and packed is not None and shipped.receive(key, packed, cache):
            kept = cache.restore(key, contender.folder)
        contender.origin["compile_cache"] = MISS if kept is None else REMOTE_HIT
        if kept is None:
            self.build_and_keep(contender, cache, key)
        else:
            self._take(contender, kept)

    def _keep(
        self, contender: Contender, cache: BuildCache, key: str, artifact: Artifact | None, fault: KernelFault | None
    ) -> None:
        finished = Finished(artifact, fault, contender.output, time.time(), self._bench.name)
        kept = cache.store(key, contender.folder, contender.sealed, finished)
        if kept and self._bench.shipped is not None:
            self._bench.shipped.ship(key, cache.archive(key), fault=fault is not None)

    def _take(self, contender: Contender, kept: Finished) -> None:
        contender.output = kept.output
        if kept.artifact is not None:
            contender.artifact = kept.artifact
            contender.compiled = True
            contender.facts |= kept.artifact.facts
        self._say_who(contender, kept.by)
        if kept.fault is not None:
            raise kept.fault
        contender.seal()

    def _say_who(self, contender: Contender, name: str) -> None:
        """Where nodes share their builds: on which one it was made."""
        if self._bench.shipped is not None:
            contender.origin["built_by"] = name

    def _compile(self, contender: Contender) -> None:
        """In a builder, with no GPU visible. Of both kernels of a job, within one time."""
        began = time.monotonic()
        try:
            contender.session = self._bench.session(
                contender.folder, gpu=False, deadline=deadline_in(self._left), cancelled=self._cancelled
            )
            contender.artifact = contender.session.build(contender.kernel)
            contender.compiled = contender.artifact.deferred is None
            contender.facts |= contender.artifact.facts
            contender.close()  # Before it is sealed: nothing may be left that writes into its folder.
            contender.seal()
        finally:
            self._left -= time.monotonic() - began


def _would_fail_again(fault: KernelFault) -> bool:
    return fault.status in CACHEABLE_FAULTS and not may_pass_again(f"{fault.message}\n{fault.log}")


def _without_paths(fault: KernelFault, contender: Contender) -> KernelFault:
    message, text = (without_machine_paths(each, contender.folder) for each in (fault.message, fault.log))
    return KernelFault(fault.status, message, text, compiled=fault.compiled)
