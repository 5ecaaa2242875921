"""Attributes a reference's lack of device memory to the candidate, if the candidate held the memory."""

from __future__ import annotations

from collections.abc import Sequence

from domain.fault import KernelFault
from domain.result import Status
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext

MAX_HELD_SHARE = 0.5
"""Share of the device's memory: a candidate that holds no more of it leaves the reference enough."""


def attribute_memory_fault(kernel_runs: Sequence[KernelRun], worker: WorkerContext) -> None:
    """Move an out-of-memory fault from the reference to the candidate, if that held most of the device's memory.

    It must also have held more than the reference. No process reports this itself: the referee ends each runner and
    measures how much memory becomes free.
    """
    reference, candidate = kernel_runs[0], kernel_runs[-1]
    fault = reference.fault
    if reference is candidate or fault is None or fault.status is not Status.OUT_OF_MEMORY or not worker.device.is_cuda:
        return
    candidate_bytes, reference_bytes = _end_and_measure(candidate, worker), _end_and_measure(reference, worker)
    if candidate_bytes > max(reference_bytes, MAX_HELD_SHARE * worker.device.memory):
        held, total = candidate_bytes >> 20, worker.device.memory >> 20
        message = f"this kernel held {held} MiB of the device's {total} MiB, and its reference found too little left"
        reference.hand_fault_to(candidate, KernelFault(Status.OUT_OF_MEMORY, message))


def _end_and_measure(kernel_run: KernelRun, worker: WorkerContext) -> int:
    before = worker.device.free
    kernel_run.close()
    return worker.device.free - before
