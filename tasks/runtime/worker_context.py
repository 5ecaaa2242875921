"""Long-lived resources of one pool child: device, zygote, null runner, runner pool. Contains no submission data."""

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

from backends.base import Target
from domain.fault import InfrastructureFault, KernelFault, clear_exception_frames
from domain.result import REFERENCE, Status
from domain.settings import settings
from profiling.gpu.measured_peaks import UNKNOWN, Ceilings, ceilings
from profiling.gpu.monitor import CardMonitor, CardUnavailable
from profiling.gpu.peak_probe import measure
from profiling.gpu.timing_device import Device
from profiling.gpu.xid_errors import CardErrors
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback, GateClosed, WindowSession
from sandbox.protocol.cuda_driver import DeviceMemoryError
from sandbox.supervisor.arena_eviction import ArenaEviction
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tasks.builds.build_session import BuildSession, deadline_in
from tasks.node.device_info import detect
from tasks.node.device_lease import quiet, stays_free
from tasks.node.gpu_process_owners import CardOwners
from tasks.node.idle_processes import IdleProcesses
from tasks.runtime.deferred_teardown import DeferredTeardown
from tasks.runtime.kept_runner import KeptRunner
from tasks.runtime.null_window_cache import NullWindowCache
from tasks.runtime.runner_pool import SPARE, WARM_S, WINDOWS_FIRST_S, PooledRunner, RunnerPool, end

log = logging.getLogger(__name__)

FOREVER = float("inf")
FEWEST_CONTEXTS = 2
CONTEXTS = 7
"""Number of contexts whose median launch time is taken for the card's usual one."""
WINDOW_SHARE = 1 / 4
"""Share of the device's memory for the inputs and outputs of a window in all their copies; the rest is for kernels."""
USUAL_SHARE = 2 / 5
"""Share that inputs and outputs of one call may take in all their copies, if every runner keeps its arena."""
ONE_CALL_SHARE, HOST_SHARE = 0.9, 1 / 2
"""The same with one call in a window, on a GPU and on a host, whose memory other programs need too."""
ARENA_SHARE = 1 / 2
"""Maximum share for one arena."""

STANDBYS_SHARE = 8
"""Divisor of the device's memory: an eighth may be taken by pooled contexts, because a kernel may need the rest."""
CONTEXT_BYTES = 512 << 20
"""Memory of one context with the libraries that it loads, in bytes, on an H200 (docs/adr/0023)."""
MOST_KERNELS = 2
"""Maximum number of kernels of a job; as many runners wait on a host without a GPU, where all are equal."""
USUAL_WORKERS = 4
"""Default number of pool children of a device."""
LAUNCH_DEVIATION_MS = 0.3e-3
"""Maximum deviation of a context's launch time from the card's median, in ms. Contexts lie within 0.2 µs of it
(docs/measurements.md). A process that copies much during the measurement makes a launch look slower; subtracting that
would make every call of the kernel look faster."""
REFERENCE_JOBS = 64
"""Maximum number of jobs of one reference's runner: what accumulates unseen in a process is bounded so."""
USED_IDLE_S = 60.0
"""Time without a job after which a candidate's kept runner ends, in s."""
CALM_S = 0.15
"""Time for which the device must be free before it counts as calm, in s. A client that sends one job after the other
needs it again within 0.05 s, through another child."""


class WorkerContext(BuildSession):
    """Made for a pool child's first job; `close` ends everything that it started."""

    def __init__(self) -> None:
        super().__init__(detect_target())
        self.device = Device(self.target.device)
        if not self.device.is_cuda:
            # As in a runner (sandbox.isolation.clean_env). On busy cores two threads wait for each other and take 7 ms
            # to copy a mebibyte; one thread takes 0.03 ms.
            torch.set_num_threads(1)
        self.window_memory = self._share(WINDOW_SHARE)
        self.usual_memory = self._share(USUAL_SHARE)
        self.one_call_memory = self._share(ONE_CALL_SHARE if self.device.is_cuda else HOST_SHARE)
        self.arena_limit = self._share(ARENA_SHARE)
        self._eviction: ArenaEviction | None = None
        self.device_id = self.device.uuid or "cpu"
        self._null: WindowSession | None = None
        self.null_window_cache = NullWindowCache()
        self._ceilings: Ceilings | None = None
        self._measurement_failed = False
        room, spare = (self._room(), SPARE) if self.device.is_cuda else (MOST_KERNELS, 0)
        yielding = partial(self.block_context_creation, queue_offset_s=WINDOWS_FIRST_S)
        self._idle = IdleProcesses(self.device_id) if self.device.is_cuda else None
        self.runner_pool = RunnerPool(
            self._forked,
            self._new_folder,
            yielding,
            spare=min(spare, room),
            room=room,
            contexts=self.device.is_cuda,
            idle=self._idle,
            is_crowded=lambda: self.device.is_crowded,
        )
        self.card = CardMonitor(self.device.uuid)
        kept = partial(
            KeptRunner, device=self.device, quiet=yielding, idle=self._idle, device_bytes=self._bytes_of_process
        )
        self.warm_reference = kept(REFERENCE_JOBS, settings().warm_reference)
        self.used_candidate = kept(self._candidate_jobs(), USED_IDLE_S, new_kernels=True)
        self.card_errors = CardErrors(self.device.uuid)
        self.teardown = DeferredTeardown(self.device)
        """The end of the last job's runners; it is over before anything else begins here."""
        gc.collect()
        gc.freeze()  # Loaded modules stay for good. A later collection skips them; with them it would take 0.1 s.

    @property
    def zygote(self) -> Zygote:
        """The zygote, after the last job's teardown no longer talks to it."""
        self._join_teardown()
        return super().zygote

    def block_context_creation(
        self, cancelled: Callable[[], bool], queue_offset_s: float = 0.0
    ) -> AbstractContextManager[None]:
        """A block in which no other process makes a context on this device (tasks.node.device_lease.quiet)."""
        return quiet(self.device_id, cancelled, queue_offset_s) if self.device.is_cuda else nullcontext()

    def acquire_runners(
        self,
        folders: list[Path],
        cancelled: Callable[[], bool],
        multi_queue: Sequence[bool] = (),
        *,
        more_follow: bool = False,
        launch_ms: float | None = None,
    ) -> list[PooledRunner]:
        """One fresh runner for each folder in which a kernel was built, before the job takes the device.

        Each runner has a folder of its own, and on a GPU a context with about the same launch time. `multi_queue` says
        for each whether its context has several hardware queues; by default none has. `more_follow`: the job asks again
        at once. `launch_ms`: the launch time of a context that the job has already, if any.
        """
        measured = self._ceilings
        usual_ms = launch_ms or (measured.launch_ms if measured is not None else None)
        return self.runner_pool.take(folders, usual_ms, cancelled, multi_queue, more_follow=more_follow)

    def refill_pool(self) -> None:
        """Between jobs: makes runners with contexts, so that the next jobs need not wait for theirs."""
        self._join_teardown()
        try:
            self.runner_pool.refill(self._is_calm)
        except (KernelFault, InfrastructureFault) as fault:  # The next job makes its own.
            log.warning("no runners could be made ahead of the next job: %s", fault)

    def start_under_tool(
        self, folder: Path, command: Sequence[str], deadline: float, cancelled: Callable[[], bool], *, gpu: bool
    ) -> Session:
        """Starts `command` (a profiler, a sanitizer) in the folder; the session talks to the runner that it starts.

        The arena lies in host memory. Raises InfrastructureFault if the process cannot be forked.
        """
        try:
            runner = self.zygote.runner(folder, gpu=gpu, deadline=deadline, cancelled=cancelled, command=command)
        except InfrastructureFault:
            self._discard()
            raise
        # The arena is this process's host memory, of which it has no more than a runner.
        limit = min(self.arena_limit, settings().runner_memory)
        return Session(runner, self.target, limit, arena_device="cpu")

    def null_window(self, slots: Slots, *, gated: bool, deferred_readback: DeferredReadback | None = None) -> Clock:
        """The clock of a null window: one in which nothing is computed, run by a runner that never sees a submission.

        The null runner lives as long as this object. It runs the project's own code, so any failure of it is raised as
        InfrastructureFault, but for a lack of device memory, which is the job's: torch.OutOfMemoryError.
        """
        try:
            if self._null is None:
                session = self._session(self._own_runners_folder(), True, FOREVER, lambda: False)
                session.evict_by(self._eviction)
                self._null = WindowSession(session, self.device, null=True)
                session.load_null()
            return self._null.window(slots, gated=gated, deferred_readback=deferred_readback).clock
        except (torch.OutOfMemoryError, DeviceMemoryError):
            self.end_null_runner()  # It may be in the middle of a window, and waits for the referee.
            raise
        except (KernelFault, GateClosed, InfrastructureFault) as fault:
            self._discard()
            if isinstance(fault, KernelFault) and fault.status is Status.OUT_OF_MEMORY:
                raise torch.OutOfMemoryError(f"the null runner: {fault}") from fault
            raise InfrastructureFault(f"the null runner failed: {fault}") from fault

    def ceilings(self) -> Ceilings:
        """The card's peak rates, measured once; UNKNOWN, which makes no time impossible, where there is no card."""
        if self._ceilings is None:
            try:
                self._ceilings = self._load_ceilings() if self.device.is_cuda else UNKNOWN
            except Exception:
                if not self._measurement_failed:  # One failure may be transient: the next job measures again.
                    self._measurement_failed = True
                    raise
                log.exception("the card's rates cannot be measured: no time is looked at for being too short")
                self._ceilings = UNKNOWN
        return self._ceilings

    def _load_ceilings(self) -> Ceilings:
        card = detect()
        return ceilings(settings().state_dir, card.name, card.driver or "unknown", self._measured_ceilings)

    def launch_shift_ms(self, standby: PooledRunner, cancelled: Callable[[], bool]) -> float | None:
        """The launch time in that runner minus the card's median, in ms, measured before it has a submission.

        None if it cannot be measured, or if it is more than contexts differ by. The caller holds the device's lease.
        """
        usual = self.ceilings().launch_ms
        here = standby.launch_ms
        if usual is not None and here is None:
            try:
                standby.session.set_deadline(deadline_in(WARM_S))
                with self.block_context_creation(cancelled):
                    here = standby.session.launch_ms()
            except KernelFault as fault:
                raise InfrastructureFault(f"a fresh runner does not launch: {fault}") from fault
        shift = here - usual if usual is not None and here is not None else math.inf
        return shift if abs(shift) <= LAUNCH_DEVIATION_MS else None

    def card_owners(self) -> CardOwners:
        """For one job: tells which of the processes on the card belong to this service."""
        return CardOwners(self.register, os.getppid())

    def kept_runner(self, role: str) -> KeptRunner:
        """The keeper of the runner that later jobs may have for a kernel of that role."""
        return self.warm_reference if role == REFERENCE else self.used_candidate

    def evict_by(self, eviction: ArenaEviction | None) -> None:
        """Until the end of the job the null runner may lose its arena to the kernels' runners."""
        self._eviction = eviction
        if self._null is not None:
            self._null.session.evict_by(eviction)

    def end_idle_runners(self) -> None:
        """Ends the runners that wait for a job, of all workers of the device, and so frees what their contexts hold."""
        if self._idle is not None and (ended := self._idle.end_all()):
            log.info("a job lacks device memory: ended %d runners that waited for a job", ended)

    def drop_null_layout(self) -> None:
        """Drops the null runner's last layout, whose image may be a large call's."""
        if self._null is not None:
            self._null.drop_layout()

    def end_null_runner(self) -> None:
        """Ends the null runner, and so frees what it and its arena hold; the next null window starts another."""
        null, self._null = self._null, None
        if null is not None:
            null.close()
        self.null_window_cache.clear()

    def release_job_memory(self) -> None:
        """Between jobs: releases the device memory that the last job made this process and its null runner allocate.

        It also clears the frames of an exception on its way, which would hold the memory while other jobs have the
        device.
        """
        clear_exception_frames(sys.exception())
        self.evict_by(None)
        try:
            self.drop_null_layout()
            if self._null is not None:
                self._null.session.load_null()
                self._null.session.detach()
        except (KernelFault, InfrastructureFault):
            self._discard()
        # A collection takes 5 ms while this job holds the device.
        if self.device.takes_much or self.device.is_crowded:
            gc.collect()
        self.device.release_memory()

    def _is_calm(self) -> bool:
        """Whether no job has wanted the device for CALM_S; False where this is the device's only pool child."""
        only_child = (settings().max_workers or USUAL_WORKERS) == 1
        return self.device.is_cuda and not only_child and stays_free(self.device_id, CALM_S)

    def _share(self, share: float) -> int:
        """ARENA_MEMORY_MIB in bytes if it is set, else that share of the device's memory."""
        return settings().arena_memory or int(self.device.memory * share)

    def _room(self) -> int:
        """Maximum number of contexts between jobs: those of all pool children take a small part of the device."""
        share = self.device.memory // STANDBYS_SHARE // (settings().max_workers or USUAL_WORKERS)
        return share // CONTEXT_BYTES

    def _candidate_jobs(self) -> int:
        """Maximum number of jobs of one candidate's runner: one where kernels reach the memory of its interpreter."""
        reuses = settings().context_reuses
        if reuses and self.device.reaches_host_memory:
            log.warning("no context is used twice: kernels on this device can write their process's host memory")
            reuses = 0
        return 1 + reuses

    def _bytes_of_process(self, pid: int) -> int | None:
        """Device memory of a process, by the driver; None if unknown, as in a container with pids of its own."""
        sample = self.card.sample(thorough=True)
        listed = () if isinstance(sample, CardUnavailable) else sample.processes or ()
        return next((process.memory_bytes for process in listed if process.pid == pid), None)

    def _forked(self, folder: Path, cancelled: Callable[[], bool]) -> Session:
        return self.session(folder, gpu=True, deadline=FOREVER, cancelled=cancelled)

    def _measured_ceilings(self) -> Ceilings:
        try:
            try:
                runners = self.runner_pool.make(CONTEXTS, lambda: False)
            except KernelFault as fault:
                log.warning("no room for %d contexts at once, fewer are measured: %s", CONTEXTS, fault)
                self.runner_pool.close()
                runners = self.runner_pool.make(FEWEST_CONTEXTS, lambda: False)
        except KernelFault as fault:
            raise InfrastructureFault(f"a fresh runner does not start: {fault}") from fault
        end(runners)
        launch_ms = [one.launch_ms for one in runners if one.launch_ms is not None]
        return replace(measure(self.device.name), launch_ms=statistics.median(launch_ms) if launch_ms else None)

    def _new_folder(self) -> Path:
        return self.private_folder(self.folder / f"standby-{secrets.token_hex(8)}")

    def _own_runners_folder(self) -> Path:
        folder = self.folder / "own"
        return folder if folder.exists() else self.private_folder(folder)

    def _join_teardown(self) -> None:
        """Waits for the end of the last job's runners. A failure there is logged and is no job's fault."""
        try:
            self.teardown.join()
        except Exception as fault:
            expected = isinstance(fault, InfrastructureFault)
            log.error("the last job's runners did not end: %s", fault, exc_info=None if expected else fault)
            # The zygote first: it may hold a reply for the next question, and its end takes along what did not end.
            super()._discard()
            self._discard()

    def _discard(self) -> None:
        self._join_teardown()
        self.end_null_runner()
        self.warm_reference.close()
        self.used_candidate.close()
        self.runner_pool.close()
        super()._discard()


@cache
def worker_context() -> WorkerContext:
    """This process's worker context, made on first use."""
    return WorkerContext()


def detect_target() -> Target:
    """The first GPU that this process may see, else the CPU. Raises InfrastructureFault if the GPU does not start, and
    DeviceError if it is gone."""
    if not torch.cuda.is_available():
        # The worker says that it judges on a GPU: a verdict of the CPU would be a lie.
        if (device := detect()).is_gpu:
            raise InfrastructureFault(f"CUDA does not start on the {device.gpu_name}: read `dmesg` and `nvidia-smi`")
        return Target("cpu", None)
    try:
        major, minor = torch.cuda.get_device_capability(0)
    except RuntimeError as error:
        raise InfrastructureFault(f"the GPU does not start: {error}") from error
    return Target("cuda:0", f"sm_{major}{minor}")
