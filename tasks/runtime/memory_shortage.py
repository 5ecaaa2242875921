"""Measures who held a device's memory when a job lacked it. It ends the job's processes for that, and asks none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from profiling.gpu.timing_device import Device
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext


@dataclass(frozen=True)
class MemoryHolders:
    """Device memory in bytes at a shortage.

    `free` was free. `kernels` has what each kernel's processes held by role, without the arena, which is the referee's.
    `left` is all that processes of other jobs and programs do not hold.
    """

    free: int
    kernels: dict[str, int]
    left: int

    def other_bytes(self, roles: Iterable[str]) -> int:
        """Bytes that the rest of the job held: the other kernel, the referee, the arenas and the null runner."""
        return self.left - self.free - sum(self.kernels[role] for role in roles)


def measure_holders(
    kernel_runs: Sequence[KernelRun], worker: WorkerContext, cancelled: Callable[[], bool]
) -> MemoryHolders:
    """Ends every process of the job; what they started ends with them, so that none of their memory seems another's.

    Meanwhile no other worker of the device makes contexts, or ends those of its last job. Raises JobCancelled.
    """
    device = worker.device
    with worker.block_context_creation(cancelled):
        free = device.free
        kernels = {run.role: end_and_measure(run, device) for run in reversed(kernel_runs)}
        worker.end_null_runner()
        return MemoryHolders(free, kernels, device.left_by_others)


def end_and_measure(kernel_run: KernelRun, device: Device) -> int:
    """Ends a kernel's processes; returns how many bytes of the device they held beside the arena."""
    arena = kernel_run.session.arena if kernel_run.session is not None else None
    arena_bytes = arena.bytes.numel() if arena is not None else 0
    free_before = device.free
    kernel_run.close()
    return max(device.free - free_before - arena_bytes, 0)
