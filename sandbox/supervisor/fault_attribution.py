"""Attributes a failed build or run to the submission or to the machine (docs/adr/0009)."""

from __future__ import annotations

from domain.fault import InfrastructureFault, KernelFault, Unproven
from domain.result import Status
from sandbox.supervisor import machine_faults
from sandbox.supervisor.resource_watch import Usage

BY_TEXT = frozenset({Status.COMPILE_ERROR, Status.RUNTIME_ERROR})
"""Statuses whose text a compiler or the system may have written."""
BY_EVIDENCE = BY_TEXT | {Status.CRASHED, Status.UNSUPPORTED, Status.TIMEOUT}
"""Statuses that a full disk can cause."""
MOST_QUOTED = 200
MEANWHILE = "the system killed processes for want of memory meanwhile: the compiler's failure may come of that"


def attribute(fault: KernelFault, usage: Usage, *, memory_kill: bool) -> KernelFault:
    """The fault itself, or OUT_OF_MEMORY if the submission used up memory or disk.

    `memory_kill` says that the OOM killer has ended a process since the submission was sent. Raises InfrastructureFault
    if evidence that the referee reads itself shows that the machine failed. Raises Unproven if only the text of the
    untrusted process says so.
    """
    if fault.status not in BY_EVIDENCE:
        return fault
    if usage.disk_was_full():
        if usage.filled_disk():
            return KernelFault(Status.OUT_OF_MEMORY, "the kernel's process filled the disk and was stopped", fault.log)
        raise InfrastructureFault("the disk of STATE_DIR is full: free some of it, or end what fills it")
    text = fault.log or fault.message  # The log repeats the message, without our prefix.
    if machine_faults.lacks_processes(text):
        raise InfrastructureFault("the machine, or its container, has no processes left: raise its limit")
    if fault.status not in BY_TEXT:
        return fault
    line = machine_faults.machine_line(text)
    if line is not None and memory_kill:
        reason = f"the system killed a compiler of the kernel: too much memory ({line.strip()[:MOST_QUOTED]})"
        return KernelFault(Status.OUT_OF_MEMORY, reason, fault.log, compiled=fault.compiled)
    if line is not None:
        raise Unproven("a compiler of the kernel was stopped by the machine, as the kernel's process says")
    if memory_kill and fault.status is Status.COMPILE_ERROR:
        return KernelFault(fault.status, f"{fault.message} ({MEANWHILE})", fault.log, compiled=fault.compiled)
    return fault
