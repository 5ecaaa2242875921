"""Decides how the calls of a job share the device's memory: by what one call needs, before its windows begin.

- `usual`: every runner has its arena for the whole job, and a window holds as many calls as the memory allows.
- `one_call`: one call in a window. The referee has one copy of the inputs and outputs for both kernels, and the outputs
  of the last window of each. Where memory is short, a runner gives up its arena before the next one has its turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import NoReturn

import torch

from domain.fault import InfrastructureFault, KernelFault, clear_exception_frames
from domain.result import REFERENCE, Status
from sandbox.protocol.cuda_driver import DeviceMemoryError
from sandbox.supervisor.arena_eviction import ArenaEviction
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.memory_shortage import MemoryHolders, measure_holders
from tasks.runtime.stream_isolation import RestartJob, with_time_spent
from tasks.runtime.worker_context import STANDBYS_SHARE

COPIES_USUAL = 6
"""Copies of a call's inputs and outputs for each kernel: arena, image, snapshot and outputs, and two of the null
runner."""
COPIES_OF_INPUTS, COPIES_OF_OUTPUTS = 2, 4
"""Copies for one call if arenas are evicted: arena and image of the inputs; arena, two snapshots, and the kernel's own
memory of the outputs."""
SLACK = 1 << 30
"""Device memory in bytes that is kept free beside what a call is known to need."""
MAX_HELD_SHARE = 0.5
"""Share of the memory that others leave of the device: a kernel that holds no more leaves the other one and the referee
enough."""
MASKED = frozenset({Status.RUNTIME_ERROR, Status.CRASHED})
"""Statuses of failures that a lack of memory may cause without saying so: cuBLAS is "not initialised" then."""
LEAST_CHANGE = 4 << 30
"""Minimum change, in bytes, of what other processes hold that counts as theirs. On large devices it is the part that
pooled contexts may take (STANDBYS_SHARE). The contexts of the job's own three processes take half as much."""
LEAST_GAIN = 20
"""Divisor of the device's memory: `one_call` must free at least that part, or a second try cannot help."""


class Arrangement(StrEnum):
    """How the runners of a job share the device's memory."""

    USUAL = "usual"
    ONE_CALL = "one_call"


class MemoryPlan:
    """The arrangement of one job: `usual` until a call turns out too large for that, then `one_call`.

    It begins with `one_call` if an earlier attempt ran out of memory in the other arrangement.
    """

    def __init__(self, job: JobContext, kernel_runs: Sequence[KernelRun]) -> None:
        self._job = job
        self._kernel_runs = kernel_runs
        self._worker = worker = job.worker
        self._call_bytes = self._input_bytes = self._output_bytes = 0
        if worker.device.is_crowded:
            worker.end_idle_runners()
        self._free_bytes = worker.device.free
        self._held_bytes = worker.device.memory - self._free_bytes if worker.device.is_crowded else 0
        """Device memory of other processes, if they leave little of it; else 0."""
        self.left_bytes = max(worker.device.left_by_others, job.queues.left_bytes)
        """Device memory in bytes that other processes left as the job was first planned."""
        self._reference_bytes: int | None = None
        self._eviction: ArenaEviction | None = None
        self._copies_bytes = 0
        self.arrangement = Arrangement.USUAL
        if job.queues.one_call:
            self._choose_one_call()

    @property
    def one_call(self) -> bool:
        """Whether a window has one call, and runners give up their arenas for each other."""
        return self.arrangement is Arrangement.ONE_CALL

    @property
    def is_large(self) -> bool:
        """Whether a window has one call because of the call's size, so that checks with further copies are left out.

        A job of small calls has room for them, though its kernels lacked memory: saying so must not avoid a check.
        """
        least = min(self._worker.usual_memory, self._worker.device.memory // LEAST_GAIN)
        return self.one_call and self._usual_bytes > self.left_of(least)

    def admit(self, input_bytes: int, output_bytes: int = 0) -> None:
        """Chooses the arrangement for calls with tensors of so many bytes, as far as they are known.

        Raises KernelFault (OUT_OF_MEMORY) if the calls do not fit in any arrangement.
        """
        needed = COPIES_OF_INPUTS * input_bytes + COPIES_OF_OUTPUTS * output_bytes
        if needed > self.left_of(self._worker.one_call_memory):
            held = f", of which other processes hold {_mib(self._held_bytes)}" if self._held_bytes else ""
            raise KernelFault(
                Status.OUT_OF_MEMORY,
                f"one call has {_mib(input_bytes)} of inputs and {_mib(output_bytes)} of outputs; the smallest way to "
                f"judge it takes {_mib(needed)}, and this worker allows {_mib(self._worker.one_call_memory)} of the "
                f"device's memory{held}: make them smaller, or send the job to a larger GPU",
                compiled=True,
            )
        self._copies_bytes = max(self._copies_bytes, needed)
        self._call_bytes = max(self._call_bytes, input_bytes + output_bytes)
        self._input_bytes = max(self._input_bytes, input_bytes)
        self._output_bytes = max(self._output_bytes, output_bytes)
        if self._usual_bytes > self.left_of(self._worker.usual_memory):
            self._choose_one_call()

    def left_of(self, limit: int) -> int:
        """The same part of the memory that other processes leave as `limit` is of the whole device's."""
        return int(limit * (1 - self._held_bytes / self._worker.device.memory))

    @property
    def _usual_bytes(self) -> int:
        """Bytes of all copies of a call in the `usual` arrangement."""
        return COPIES_USUAL * len(self._kernel_runs) * self._call_bytes

    @property
    def is_tight(self) -> bool:
        """Whether the copies of one call take so much that none may be kept for a check."""
        return self._copies_bytes > self.left_of(self._worker.device.memory) // 2

    @property
    def shortages(self) -> int:
        """How often so far a runner or the referee lacked memory for its next call."""
        return 0 if self._eviction is None else self._eviction.shortages

    def make_room(self) -> None:
        """Takes all arenas from the runners, before the referee itself needs memory; they get new ones."""
        if self._eviction is not None:
            self._eviction.evict_all()
            self._worker.device.empty_cache()

    def make_room_to_draw(self) -> None:
        """Takes arenas from the runners while the next inputs have no room.

        Their source, its arena and the referee hold a copy each on the way.
        """
        needed, device = 3 * self._input_bytes + SLACK, self._worker.device
        if self._eviction is not None and device.free < needed:
            device.empty_cache()
            while device.free < needed and self._eviction.evict_next():
                pass

    @contextmanager
    def retried(self) -> Iterator[None]:
        """A block in which the job runs. If device memory runs out in it, the referee measures who held it.

        It raises RestartJob if `one_call` would free much, and InfrastructureFault if other processes have taken or
        freed memory since the job was planned. It records a fault otherwise:

        - A kernel that lacked memory is to blame for that itself. The reference is not if the candidate held most of
          the device.
        - If the referee lacked memory, a kernel that held most of the device is to blame. If none did, and calls are
          large or the kernels held much together, it is a candidate that held far more than its reference, else the
          first kernel. Otherwise InfrastructureFault is raised.
        """
        began = time.monotonic()
        try:
            yield
        except Stopped:
            if failed := [run for run in self._kernel_runs if _lacks_memory(run)]:
                self._blame_kernels(failed, self._holders(failed, began))
            elif self._is_full and any(run.fault and run.fault.status in MASKED for run in self._kernel_runs):
                self._check_growth(measure_holders(self._kernel_runs, self._worker, self._job.cancelled))
            raise
        except (torch.OutOfMemoryError, DeviceMemoryError) as error:
            clear_exception_frames(error)
            self._blame_for_referee(self._holders([], began), error)

    def _holders(self, failed: Sequence[KernelRun], began: float) -> MemoryHolders:
        """Measures who held the device's memory when these kernels, or the referee, lacked it. Raises as `retried`."""
        device = self._worker.device
        restarts = bool(self._held_bytes) or self._usual_bytes > device.memory // LEAST_GAIN
        if not device.is_cuda:  # Host memory is bounded for each runner, and nobody else can take it.
            holders = MemoryHolders(device.free, {run.role: 0 for run in self._kernel_runs}, self.left_bytes)
        else:
            holders = measure_holders(self._kernel_runs, self._worker, self._job.cancelled)
            grew = self.left_bytes - holders.left > self._usual_change
            has_room = not grew or self._copies_bytes + SLACK <= holders.left
            held_much = holders.other_bytes(run.role for run in failed) > self._usual_change
            restarts = has_room and (restarts or held_much)
        if restarts and not self.one_call:
            self._restart(began)
        self._check_growth(holders)
        return holders

    def _check_growth(self, holders: MemoryHolders) -> None:
        """Raises InfrastructureFault if other processes hold more or less memory than as the job was planned."""
        growth = self.left_bytes - holders.left
        if abs(growth) > self._usual_change:
            raise InfrastructureFault(
                f"the job failed after other processes' part of the device's {_mib(self._worker.device.memory)} "
                f"{'grew' if growth > 0 else 'shrank'} by {_mib(abs(growth))}: `nvidia-smi` lists them"
            ) from None

    @property
    def _usual_change(self) -> int:
        """Bytes by which what other processes hold may change during any job."""
        return max(self._worker.device.memory // STANDBYS_SHARE, LEAST_CHANGE)

    @property
    def _is_full(self) -> bool:
        """Whether so little memory is left of the device that any failure may come of that."""
        device = self._worker.device
        return device.is_cuda and device.left_by_others < self._usual_change

    def _blame_kernels(self, failed: Sequence[KernelRun], holders: MemoryHolders) -> None:
        """Moves the reference's lack of memory to a candidate that held most of the device; else explains the
        candidate's."""
        reference, candidate = self._kernel_runs[0], self._kernel_runs[-1]
        if reference in failed and reference is not candidate and self._holder(holders) is candidate:
            held, total = _mib(holders.kernels[candidate.role]), _mib(self._worker.device.memory)
            message = f"this kernel held {held} of the device's {total}, and its reference found too little left"
            reference.fault, candidate.fault = None, KernelFault(Status.OUT_OF_MEMORY, message)
        elif candidate in failed:
            self._explain()

    def _blame_for_referee(self, holders: MemoryHolders, error: Exception) -> NoReturn:
        """Records a fault and raises Stopped, or raises InfrastructureFault, because the referee lacks memory."""
        total = _mib(self._worker.device.memory)
        if (holder := self._holder(holders)) is not None:
            held = _mib(holders.kernels[holder.role])
            message = f"this kernel held {held} of the device's {total}, and the referee lacked memory"
            holder.fail(KernelFault(Status.OUT_OF_MEMORY, message, compiled=True))
        held_bytes = sum(holders.kernels.values())
        if not self.is_large and held_bytes <= MAX_HELD_SHARE * holders.left:
            raise InfrastructureFault(
                f"the referee lacks device memory for small calls, and the kernels hold only {_mib(held_bytes)} of "
                f"{total}, of which {_mib(self._free_bytes)} were free before: {error}"
            ) from None
        message = (
            f"the referee found too little of the device's memory for the inputs and outputs of one call, "
            f"{_mib(self._call_bytes)}: {_mib(holders.free)} of {total} were free, and the kernels held "
            f"{_mib(held_bytes)}; make them smaller, or use a larger GPU"
        )
        reference, candidate = self._kernel_runs[0], self._kernel_runs[-1]
        # A candidate may hold just less than half: what its reference does without, it need not have.
        excess = holders.kernels[candidate.role] - holders.kernels[reference.role]
        blamed = candidate if excess > self._usual_change else reference
        blamed.fail(KernelFault(Status.OUT_OF_MEMORY, message, compiled=True))

    def _holder(self, holders: MemoryHolders) -> KernelRun | None:
        """The kernel that held most, if that is over MAX_HELD_SHARE of what others leave; else None."""
        most = max(self._kernel_runs, key=lambda run: holders.kernels[run.role])
        return most if holders.kernels[most.role] > MAX_HELD_SHARE * holders.left else None

    @contextmanager
    def measured(self, kernel_runs: Sequence[KernelRun]) -> Iterator[None]:
        """A block in which these kernels are called first.

        With one call in a window, all other runners give up their arenas, because the size of outputs is not known yet.
        The referee gives up its layouts of earlier calls: of another case, or of the forward pass alone. It then notes
        what the reference takes of the device by itself.
        """
        if self._eviction is None:
            yield
            return
        self._worker.drop_null_layout()
        for window_session in filter(None, (run.window_session for run in self._kernel_runs)):
            window_session.drop_layout()
        self._eviction.evict_all(but=kernel_runs[0].session)
        self._worker.device.empty_cache()
        free = self._worker.device.free
        yield
        if [run.role for run in kernel_runs] == [REFERENCE] and self._worker.device.is_cuda:
            self._reference_bytes = max(free - self._worker.device.free, 0)

    def _explain(self) -> None:
        """Adds to a candidate's fault how much memory there was, and how much its reference took."""
        candidate = self._kernel_runs[-1]
        if candidate.fault is None or not self._worker.device.is_cuda:
            return
        free, total = _mib(self._free_bytes), _mib(self._worker.device.memory)
        figures = f"{free} of the device's {total} were free before the kernels were called"
        if self._reference_bytes is not None:
            figures += f", and its reference took {_mib(self._reference_bytes)}"
        message, log = f"{candidate.fault.message} ({figures})", candidate.fault.log
        candidate.fault = KernelFault(Status.OUT_OF_MEMORY, message, log, compiled=candidate.fault.compiled)

    def _restart(self, began: float) -> None:
        """Raises RestartJob for `one_call` if there is time for that; returns otherwise."""
        next_queues = with_time_spent(self._job.queues, self._kernel_runs, began, self._job.request.timeout)
        if next_queues is not None:
            self._end_idle_runners()
            raise RestartJob(replace(next_queues, one_call=True)) from None

    def _end_idle_runners(self) -> None:
        """Ends the runners that wait for a job, and adds to the plan what they held."""
        before = self._worker.device.left_by_others
        self._worker.end_idle_runners()
        self.left_bytes += max(self._worker.device.left_by_others - before, 0)

    def _has_room(self, new_bytes: int) -> bool:
        """Whether a runner can have so many bytes for its arena, and the referee a copy of the outputs beside them."""
        needed = new_bytes + self._output_bytes + SLACK
        for free_more in (self._worker.device.empty_cache, self._end_idle_runners):
            if self._worker.device.free >= needed:
                return True
            free_more()
        return self._worker.device.free >= needed

    def _choose_one_call(self) -> None:
        if self.one_call:
            return
        self.arrangement = Arrangement.ONE_CALL
        self._eviction = ArenaEviction(self._has_room)
        self._worker.evict_by(self._eviction)
        for kernel_run in self._kernel_runs:
            kernel_run.open_session.evict_by(self._eviction)


def _lacks_memory(kernel_run: KernelRun) -> bool:
    return kernel_run.fault is not None and kernel_run.fault.status is Status.OUT_OF_MEMORY


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
