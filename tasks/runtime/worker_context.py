"""What a pool child keeps between jobs: its device, its zygote, its null runner. Holds nothing of any submission."""

from __future__ import annotations

import gc
import logging
import math
import os
import secrets
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch

from domain.fault import InfrastructureFault, KernelFault, let_go_of_frames
from domain.settings import settings
from profiling.gpu.measured_peaks import UNKNOWN, Ceilings, ceilings
from profiling.gpu.monitor import CardMonitor
from profiling.gpu.peak_probe import measure
from profiling.gpu.timing_device import Device
from profiling.gpu.xid_errors import CardErrors
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, GateClosed, HeldBack, Range
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tasks.builds.build_session import BuildBench, deadline_in
from tasks.node.build_target import detect_target
from tasks.node.device_info import detect
from tasks.node.device_lease import quiet, stays_free
from tasks.node.gpu_process_owners import CardOwners
from tasks.runtime.deferred_teardown import Dying
from tasks.runtime.null_window_cache import KnownNulls
from tasks.runtime.runner_pool import SPARE, WARM_S, WINDOWS_FIRST_S, Standby, Standbys, end

log = logging.getLogger(__name__)

FOREVER = float("inf")
FEWEST_CONTEXTS = 2
CONTEXTS = 7
"""The middle of so many contexts' launches is the card's usual one."""
ARENA_SHARE = 4
"""By default a quarter of the device's memory is for inputs and outputs in all their copies, the rest for kernels."""

STANDBYS_SHARE = 8
"""Of a device's memory, what contexts may take that only wait: a kernel may want the rest."""
CONTEXT_BYTES = 512 << 20
"""Of one context with what it has loaded, on an H200 (docs/adr/0016)."""
MOST_KERNELS = 2
"""Of a job. So many wait on a host without a GPU, where one is as good as another."""
USUAL_WORKERS = 4
"""Pool children of a device where the settings do not say."""
LAUNCHES_APART_MS = 0.3e-3
"""Contexts of a card's launches lie within 0.2 µs of their middle (docs/measurements.md); who copies much beside the
measurement makes a launch look dearer than that, and every call of the kernel that comes there would gain it."""
CALM_S = 0.15
"""Who sends one job after the other wants the device again within 0.05 s, by another child."""

CALL_SHARE = 2
"""One call's tensors get half of that: the sets drawn, the image, the arena and the snapshot are copies of them."""


class Workbench(BuildBench):
    """Opened on a pool child's first job; `close` ends everything it started."""

    def __init__(self) -> None:
        super().__init__(detect_target())
        self.device = Device(self.target.device)
        if not self.device.is_cuda:
            # As in a runner (sandbox.isolation.clean_env). Where other work has the cores, two threads that wait for
            # each other take 7 ms for a copy of a mebibyte, which one does in 0.03.
            torch.set_num_threads(1)
        self.arena_memory = settings().arena_memory or self.device.memory // ARENA_SHARE
        self.call_memory = self.arena_memory // CALL_SHARE
        self.device_id = self.device.uuid or "cpu"
        self._null: Range | None = None
        self.known_nulls = KnownNulls()
        self._ceilings: Ceilings | None = None
        self._measured_in_vain = False
        room, spare = (self._room(), SPARE) if self.device.is_cuda else (MOST_KERNELS, 0)
        yielding = partial(self.quiet, queue_offset_s=WINDOWS_FIRST_S)
        self.standbys = Standbys(
            self._forked, self._new_folder, yielding, spare=min(spare, room), room=room, contexts=self.device.is_cuda
        )
        self.card = CardMonitor(self.device.uuid)
        self.card_errors = CardErrors(self.device.uuid)
        self.dying = Dying(self.device)
        """What the last job has left: waited for before anything else is begun here."""
        gc.collect()
        gc.freeze()  # What is loaded stays: looking for what a job has left takes a moment then, and 0.1 s else.

    @property
    def zygote(self) -> Zygote:
        """The zygote, which nobody else talks to any more."""
        self._bury()
        return super().zygote

    @property
    def standbys_ready(self) -> int | None:
        """Runners whose contexts wait for a job; None on the CPU, where there are none."""
        return self.standbys.ready if self.device.is_cuda else None

    def quiet(self, cancelled: Callable[[], bool], queue_offset_s: float = 0.0) -> AbstractContextManager[None]:
        """Inside, nobody else makes a context on this device (tasks.node.device_lease.quiet)."""
        return quiet(self.device_id, cancelled, queue_offset_s) if self.device.is_cuda else nullcontext()

    def warm(
        self,
        folders: list[Path],
        cancelled: Callable[[], bool],
        apart: Sequence[bool] = (),
        *,
        more_follow: bool = False,
    ) -> list[Standby]:
        """A fresh runner for each kernel that was built in those folders: whoever holds the device need not wait.

        They have folders of their own, and on a GPU contexts that launch alike. `apart`: whether the streams of each
        have queues of their own there; none has where nothing is said. `more_follow`: the job will ask again at once.
        """
        known = self._ceilings
        usual_ms = known.launch_ms if known is not None else None
        return self.standbys.take(folders, usual_ms, cancelled, apart, more_follow=more_follow)

    def stock_up(self) -> None:
        """Between jobs: runners for the next ones with their contexts, so that these need not wait for theirs."""
        self._bury()
        try:
            self.standbys.stock_up(self._is_calm)
        except (KernelFault, InfrastructureFault) as fault:  # The next job makes its own.
            log.warning("no runners could be made ahead of the next job: %s", fault)

    def beneath(
        self, folder: Path, command: Sequence[str], deadline: float, cancelled: Callable[[], bool], *, gpu: bool
    ) -> Session:
        """A runner, or another program, that a tool's command starts in that folder; nothing of it lies on the device.

        Raises InfrastructureFault where it cannot be forked.
        """
        try:
            runner = self.zygote.runner(folder, gpu=gpu, deadline=deadline, cancelled=cancelled, command=command)
        except InfrastructureFault:
            self._discard()
            raise
        # Host memory, and this process's own: it has no more of it than a runner.
        limit = min(self.arena_memory, settings().runner_memory)
        return Session(runner, self.target, limit, arena_device="cpu")

    def null_window(self, slots: Slots, *, gated: bool, held_back: HeldBack | None = None) -> Clock:
        """The clock of a window in which nothing is computed, from a runner that never sees a submission.

        The runner lives as long as the workbench. It runs our own code, so what goes wrong in it is our own fault.
        """
        try:
            if self._null is None:
                session = self._session(self._own_runners_folder(), True, FOREVER, lambda: False)
                self._null = Range(session, self.device, null=True)
                session.load_null()
            return self._null.window(slots, gated=gated, held_back=held_back).clock
        except (KernelFault, GateClosed, InfrastructureFault) as fault:
            self._discard()
            raise InfrastructureFault(f"the null runner failed: {fault}") from fault

    def ceilings(self) -> Ceilings:
        """What the card can do at best, measured once; makes nothing impossible where there is no card."""
        if self._ceilings is None:
            try:
                self._ceilings = self._known_ceilings() if self.device.is_cuda else UNKNOWN
            except Exception:
                if not self._measured_in_vain:  # Once is the moment's: the next job measures again.
                    self._measured_in_vain = True
                    raise
                log.exception("the card's rates cannot be measured: no time is looked at for being too short")
                self._ceilings = UNKNOWN
        return self._ceilings

    def _known_ceilings(self) -> Ceilings:
        card = detect()
        return ceilings(settings().state_dir, card.name, card.driver or "unknown", self._measured_ceilings)

    def launch_shift_ms(self, standby: Standby, cancelled: Callable[[], bool]) -> float | None:
        """By how much a launch takes longer in that runner than on this card as a rule. Before it has a submission.

        None where that cannot be told, or is more than contexts differ by. Needs the device's lease.
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
        shift = here - usual if usual is not None and here is not None else math.inf
        return shift if abs(shift) <= LAUNCHES_APART_MS else None

    def card_owners(self) -> CardOwners:
        """For one job: whose the processes are that the driver lists on the card."""
        return CardOwners(self.register, os.getppid())

    def rest(self) -> None:
        """Between jobs: gives back what the last one made this process and its null runner take of the device.

        Also where something is raised: it would keep it until it is handled, and others have the device by then.
        """
        let_go_of_frames(sys.exception())
        try:
            if self._null is not None:
                self._null.forget()
                self._null.session.load_null()
                self._null.session.detach()
        except (KernelFault, InfrastructureFault):
            self._discard()
        if self.device.takes_much:  # To look for what only the collector finds takes 5 ms, with the device in hand.
            gc.collect()
        self.device.release_memory()

    def _is_calm(self) -> bool:
        """Whether nobody has wanted the device for a while. Not asked where there is no other child for a job."""
        alone = (settings().max_workers or USUAL_WORKERS) == 1
        return self.device.is_cuda and not alone and stays_free(self.device_id, CALM_S)

    def _room(self) -> int:
        """How many contexts may wait between jobs: all pool children's together take a small part of the device."""
        share = self.device.memory // STANDBYS_SHARE // (settings().max_workers or USUAL_WORKERS)
        return share // CONTEXT_BYTES

    def _forked(self, folder: Path, cancelled: Callable[[], bool]) -> Session:
        return self.session(folder, gpu=True, deadline=FOREVER, cancelled=cancelled)

    def _measured_ceilings(self) -> Ceilings:
        try:
            try:
                made = self.standbys.make(CONTEXTS, lambda: False)
            except KernelFault as fault:
                log.warning("no room for %d contexts at once, fewer are measured: %s", CONTEXTS, fault)
                self.standbys.close()
                made = self.standbys.make(FEWEST_CONTEXTS, lambda: False)
        except KernelFault as fault:
            raise InfrastructureFault(f"a fresh runner does not start: {fault}") from fault
        end(made)
        found = [one.launch_ms for one in made if one.launch_ms is not None]
        return replace(measure(self.device.name), launch_ms=statistics.median(found) if found else None)

    def _new_folder(self) -> Path:
        return self.private_folder(self.folder / f"standby-{secrets.token_hex(8)}")

    def _own_runners_folder(self) -> Path:
        """Of the runners that see no submission."""
        folder = self.folder / "own"
        return folder if folder.exists() else self.private_folder(folder)

    def _bury(self) -> None:
        """Waits until nothing of the last job is left. What goes wrong with it is no job's fault."""
        try:
            self.dying.wait()
        except Exception as fault:
            known = isinstance(fault, InfrastructureFault)
            log.error("what the last job left did not end: %s", fault, exc_info=None if known else fault)
            # The zygote first: it may still have an answer for whoever asks it next, and takes along what did not end.
            super()._discard()
            self._discard()

    def _discard(self) -> None:
        self._bury()
        if self._null is not None:
            self._null.close()
            self._null = None
        self.known_nulls.forget()
        self.standbys.close()
        super()._discard()


@cache
def workbench() -> Workbench:
    """This process's workbench."""
    return Workbench()
