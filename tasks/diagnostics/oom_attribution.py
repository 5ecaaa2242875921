"""Attributes a reference's lack of device memory to the candidate, if the candidate held the memory."""

from __future__ import annotations

from collections.abc import Sequence

from domain.fault import KernelFault
from domain.result import Status
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext

MAX_HELD_SHARE = 0.5
"""Share of the device's memory: a candidate that holds no more of it leaves the reference enough."""


def attribute_memory_fault(contenders: Sequence[KernelRun], bench: WorkerContext) -> None:
    """Move an out-of-memory fault from the reference to the candidate, if that held most of the device's memory.

    It must also have held more than the reference. No process reports this itself: the referee ends each runner and
    measures how much memory becomes free.
    """
    reference, candidate = contenders[0], contenders[-1]
    fault = reference.fault
    if reference is candidate or fault is None or fault.status is not Status.OUT_OF_MEMORY or not bench.device.is_cuda:
        return
    candidate_bytes, reference_bytes = _end_and_measure(candidate, bench), _end_and_measure(reference, bench)
    if candidate_bytes > max(reference_bytes, MAX_HELD_SHARE * bench.device.memory):
        mib = candidate_bytes >> 20
        message = f"this kernel held {mib} MiB of the device's memory, and its reference found too little left"
        reference.fault, candidate.fault = None, KernelFault(Status.OUT_OF_MEMORY, message)


def _end_and_measure(contender: KernelRun, bench: WorkerContext) -> int:
    before = bench.device.free
    contender.close()
    return bench.device.free - before
