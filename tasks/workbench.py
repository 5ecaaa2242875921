"""What a pool child keeps between jobs: its device, its zygote, its null runner. Holds nothing of any submission."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import psutil
import torch

from backends.backend import Target
from domain.fault import InfrastructureFault, KernelFault
from domain.settings import settings
from profiling.card import CardMonitor
from profiling.ceiling_probe import measure
from profiling.ceilings import UNKNOWN, Ceilings, ceilings
from profiling.device import Device
from profiling.slots import Slots
from profiling.window import Clock, GateClosed, Range
from sandbox.launcher import Zygote
from sandbox.session import Session
from tasks.bench_folder import BenchFolder
from tasks.device import detect
from tasks.lease import quiet
from tasks.standbys import SPARE, WARM_S, Standby, Standbys

log = logging.getLogger(__name__)

FOREVER = float("inf")
FEWEST_CONTEXTS = 2
CONTEXTS = 7
"""From so many contexts' launches the card's are told."""
ARENA_SHARE = 4
"""By default a quarter of the device's memory is for inputs and outputs in all their copies, the rest for kernels."""

STANDBYS_SHARE = 16
"""Of a device's memory, what contexts may take that only wait: a kernel may want the rest."""
CONTEXT_BYTES = 512 << 20
"""Of one context with what it has loaded, on an H200 (docs/adr/0016)."""
USUAL_WORKERS = 4
"""Pool children of a device where the settings do not say."""

CALL_SHARE = 2
"""One call's tensors get half of that: the sets drawn, the image, the arena and the snapshot are copies of them."""


class Workbench:
    """Opened on a pool child's first job; `close` ends everything it started."""

    def __init__(self) -> None:
        self.target = detect_target()
        self.device = Device(self.target.device)
        self.arena_memory = settings().arena_memory or self.device.memory // ARENA_SHARE
        self.call_memory = self.arena_memory // CALL_SHARE
        self._own_folder = BenchFolder(settings().state_dir / "work")
        self.folder = self._own_folder.path
        self.device_id = self.device.uuid or "cpu"
        self._zygote: Zygote | None = None
        self._null: Range | None = None
        self._ceilings: Ceilings | None = None
        self._standbys = Standbys(self._forked, self.quiet, self._spare())
        self.card = CardMonitor(self.device.uuid)

    @property
    def zygote(self) -> Zygote:
        """The zygote; started on first use and again if it has died."""
        if self._zygote is not None and not self._zygote.alive:
            self._discard()
        if self._zygote is None:
            self._zygote = Zygote(self.folder, interpret=not self.target.is_cuda, memory_limit=settings().runner_memory)
        return self._zygote

    def start_zygote(self) -> None:
        """Before a kernel's time begins: its start is ours, seconds on a busy machine. Raises InfrastructureFault."""
        _ = self.zygote

    def quiet(self, cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
        """Inside, nobody else makes a context on this device (tasks.lease.quiet)."""
        return quiet(self.device_id, cancelled) if self.device.is_cuda else nullcontext()

    def warm(self, count: int, cancelled: Callable[[], bool]) -> list[Standby]:
        """Fresh runners, on a GPU with contexts that launch alike: whoever holds the device need not wait for them."""
        if not self.device.is_cuda:
            return [Standby(self._forked(cancelled)) for _ in range(count)]
        known = self._ceilings
        return self._standbys.take(count, known.launch_ms if known is not None else None, cancelled)

    def session(self, *, deadline: float, cancelled: Callable[[], bool]) -> Session:
        """A fresh runner for one submission. `deadline` is by time.monotonic()."""
        try:
            return self._session(deadline, cancelled)
        except InfrastructureFault:
            self._discard()
            raise

    def null_window(self, slots: Slots, *, gated: bool) -> Clock:
        """The clock of a window in which nothing is computed, from a runner that never sees a submission.

        The runner lives as long as the workbench. It runs our own code, so what goes wrong in it is our own fault.
        """
        try:
            if self._null is None:
                session = self._session(FOREVER, lambda: False)
                self._null = Range(session, self.device, null=True)
                session.load_null()
            return self._null.window(slots, gated=gated, marked=False).clock
        except (KernelFault, GateClosed, InfrastructureFault) as fault:
            self._discard()
            raise InfrastructureFault(f"the null runner failed: {fault}") from fault

    def ceilings(self) -> Ceilings:
        """What the card can do at best, measured once; makes nothing impossible where there is no card."""
        if self._ceilings is None:
            self._ceilings = UNKNOWN
            if self.device.is_cuda:
                found = detect()
                self._ceilings = ceilings(
                    settings().state_dir, found.name, found.driver or "unknown", self._measured_ceilings
                )
        return self._ceilings

    def launch_shift_ms(self, standby: Standby, cancelled: Callable[[], bool]) -> float | None:
        """By how much a launch takes longer in that runner than on this card as a rule. Before it has a submission.

        None where that cannot be told. Needs the device's lease.
        """
        usual = self.ceilings().launch_ms
        here = standby.launch_ms
        if usual is not None and here is None:
            try:
                standby.session.until(deadline_in(WARM_S))
                with self.quiet(cancelled):
                    here = standby.session.launch_ms()
            except KernelFault as fault:
                raise InfrastructureFault(f"a fresh runner does not launch: {fault}") from fault
        return here - usual if usual is not None and here is not None else None

    def own_pids(self) -> set[int]:
        """Every process of this service on this node: none of them is a stranger on the card."""
        worker = psutil.Process(os.getppid())
        return {os.getpid(), worker.pid, *(child.pid for child in worker.children(recursive=True))}

    def rest(self) -> None:
        """Between jobs: gives back what the last one made this process and its null runner take of the device."""
        try:
            if self._null is not None:
                self._null.forget()
                self._null.session.load_null()
                self._null.session.detach()
        except (KernelFault, InfrastructureFault):
            self._discard()
        self.device.release_memory()

    @contextmanager
    def job_folder(self) -> Iterator[Path]:
        """A folder for one job's files; gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the zygote and every runner, removes the folder."""
        self._discard()
        self._own_folder.close()

    def _spare(self) -> int:
        """How many contexts may wait for a choice: all pool children's together take a small part of the device."""
        share = self.device.memory // STANDBYS_SHARE // (settings().max_workers or USUAL_WORKERS)
        return min(SPARE, share // CONTEXT_BYTES)

    def _forked(self, cancelled: Callable[[], bool]) -> Session:
        return self.session(deadline=FOREVER, cancelled=cancelled)

    def _session(self, deadline: float, cancelled: Callable[[], bool]) -> Session:
        runner = self.zygote.runner(deadline=deadline, cancelled=cancelled)
        return Session(runner, self.target, self.arena_memory)

    def _measured_ceilings(self) -> Ceilings:
        try:
            try:
                made = self._standbys.make(CONTEXTS, lambda: False)
            except KernelFault as fault:
                log.warning("no room for %d contexts at once, fewer are measured: %s", CONTEXTS, fault)
                self._standbys.close()
                made = self._standbys.make(FEWEST_CONTEXTS, lambda: False)
        except KernelFault as fault:
            raise InfrastructureFault(f"a fresh runner does not start: {fault}") from fault
        for one in made:
            one.session.close()
        found = sorted(one.launch_ms for one in made if one.launch_ms is not None)
        # The faster of the two kinds of contexts; the very fastest may be by itself.
        return replace(measure(self.device.name), launch_ms=found[:2][-1] if found else None)

    def _discard(self) -> None:
        if self._null is not None:
            self._null.session.close()
            self._null = None
        self._standbys.close()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


@cache
def workbench() -> Workbench:
    """This process's workbench."""
    return Workbench()


def detect_target() -> Target:
    """The first GPU that this process may see, else the CPU. Raises InfrastructureFault if the GPU does not start."""
    if not torch.cuda.is_available():
        return Target("cpu", None)
    try:
        major, minor = torch.cuda.get_device_capability(0)
    except RuntimeError as error:
        raise InfrastructureFault(f"the GPU does not start: {error}") from error
    return Target("cuda:0", f"sm_{major}{minor}")


def deadline_in(seconds: float) -> float:
    """That many seconds from now, by time.monotonic()."""
    return time.monotonic() + seconds
