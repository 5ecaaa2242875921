"""Whose the device's memory was where a reference found none left."""

from __future__ import annotations

from collections.abc import Sequence

from domain.fault import KernelFault
from domain.result import Status
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext

MOST = 0.5
"""Of the device's memory: who holds no more of it leaves a reference enough."""


def blame_for_memory(contenders: Sequence[KernelRun], bench: WorkerContext) -> None:
    """Has the candidate be out of memory, not its reference, where it held most of the device's, and more than that.

    By no process's own word: each is ended, and what is free then and was not before is what it held.
    """
    reference, candidate = contenders[0], contenders[-1]
    fault = reference.fault
    if reference is candidate or fault is None or fault.status is not Status.OUT_OF_MEMORY or not bench.device.is_cuda:
        return
    theirs, ours = _held(candidate, bench), _held(reference, bench)
    if theirs > max(ours, MOST * bench.device.memory):
        told = f"this kernel held {theirs >> 20} MiB of the device's memory, and its reference found too little left"
        reference.fault, candidate.fault = None, KernelFault(Status.OUT_OF_MEMORY, told)


def _held(contender: KernelRun, bench: WorkerContext) -> int:
    before = bench.device.free
    contender.close()
    return bench.device.free - before
