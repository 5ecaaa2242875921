"""Attributes a reference's lack of device memory to the candidate, if the candidate held the memory."""

from __future__ import annotations

from collections.abc import Sequence

from domain.fault import KernelFault
from domain.result import Status
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.memory_plan import MAX_HELD_SHARE, end_and_measure
from tasks.runtime.worker_context import WorkerContext


def attribute_memory_fault(kernel_runs: Sequence[KernelRun], worker: WorkerContext) -> None:
    """Move an out-of-memory fault from the reference to the candidate, if that held most of the device's memory.

    It must also have held more than the reference. No process reports this itself: the referee ends each runner and
    measures how much memory becomes free.
    """
    reference, candidate = kernel_runs[0], kernel_runs[-1]
    fault = reference.fault
    if reference is candidate or fault is None or fault.status is not Status.OUT_OF_MEMORY or not worker.device.is_cuda:
        return
    candidate_bytes, reference_bytes = (end_and_measure(run, worker.device) for run in (candidate, reference))
    if candidate_bytes > max(reference_bytes, MAX_HELD_SHARE * worker.device.memory):
        held, total = candidate_bytes >> 20, worker.device.memory >> 20
        message = f"this kernel held {held} MiB of the device's {total} MiB, and its reference found too little left"
        reference.fault, candidate.fault = None, KernelFault(Status.OUT_OF_MEMORY, message)
