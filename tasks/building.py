"""A contender's build: out of the cache, or by a builder and then into it; many jobs with one source build it once."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from domain.fault import KernelFault
from domain.request import Request
from domain.result import Status
from tasks.build_cache import BuildCache, Finished
from tasks.contender import Contender, Stopped
from tasks.privacy import without_machine_paths
from tasks.workbench import Workbench, deadline_in

PATIENCE_S = 45.0
"""For another job's build of the same, out of watch.SLACK_S; then it is built all the same."""

HIT, MISS, OFF = "hit", "miss", "off"
_KEPT_FAULTS = (Status.COMPILE_ERROR, Status.UNSUPPORTED)
_OF_THE_MACHINE = re.compile(
    r"\bKilled\b|signal terminated|No space left|[Cc]annot allocate memory|[Oo]ut of memory|"
    r"internal compiler error|Resource temporarily unavailable|Segmentation fault|Input/output error"
)
"""What makes a compiler fail that would not fail again."""


class Building:
    """The builds of one request."""

    def __init__(self, bench: Workbench, request: Request, cancelled: Callable[[], bool]) -> None:
        self._bench = bench
        self._timeout: float = request.build_seconds
        self._left = self._timeout
        self._own_timeout = request.build_timeout is not None
        self._cancelled = cancelled

    def build_all(self, contenders: Iterable[Contender]) -> None:
        """Every one of them, also when one before it failed; raises Stopped if any did."""
        failed: Stopped | None = None
        for contender in contenders:
            started = time.monotonic()
            try:
                with contender.answerable():
                    self._build_in_time(contender)
            except Stopped as stopped:
                failed = stopped
            finally:
                contender.close()
                contender.build_s = time.monotonic() - started
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
            contender.facts["compile_cache"] = OFF
            self._compile(contender)
            return
        key = self._bench.build_key(contender.kernel)
        with cache.alone(key, self._cancelled, min(PATIENCE_S, self._timeout)):
            kept = cache.restore(key, contender.folder)
            contender.facts["compile_cache"] = MISS if kept is None else HIT
            if kept is None:
                self._compile_and_keep(contender, cache, key)
            else:
                _take(contender, kept)

    def _compile_and_keep(self, contender: Contender, cache: BuildCache, key: str) -> None:
        try:
            self._compile(contender)
        except KernelFault as fault:
            contender.close()
            if _would_fail_again(fault):
                with suppress(KernelFault):  # Of the folder's size: then this is not kept.
                    contender.seal()
                    finished = Finished(None, _without_paths(fault, contender), contender.output, time.time())
                    cache.store(key, contender.folder, contender.sealed, finished)
            raise
        if contender.artifact.deferred is None:
            artifact = contender.artifact
            text = without_machine_paths(artifact.log, contender.folder)
            finished = Finished(dataclasses.replace(artifact, log=text), None, contender.output, time.time())
            cache.store(key, contender.folder, contender.sealed, finished)

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


def _take(contender: Contender, kept: Finished) -> None:
    contender.output = kept.output
    if kept.fault is not None:
        raise kept.fault
    if kept.artifact is not None:
        contender.artifact = kept.artifact
        contender.compiled = True
        contender.facts |= kept.artifact.facts
    contender.seal()


def _would_fail_again(fault: KernelFault) -> bool:
    return fault.status in _KEPT_FAULTS and not _OF_THE_MACHINE.search(f"{fault.message}\n{fault.log}")


def _without_paths(fault: KernelFault, contender: Contender) -> KernelFault:
    message, text = (without_machine_paths(each, contender.folder) for each in (fault.message, fault.log))
    return KernelFault(fault.status, message, text, compiled=fault.compiled)
