"""Faults: exceptions inside the service that become a verdict (KernelFault) or a retry (InfrastructureFault)."""

from __future__ import annotations

import re
import traceback

from domain.result import Lack, Status

DRIVER_FAILED = "kernel-eval compiler driver failed"
"""Begins the only line that the compiler driver writes if it fails itself: no fault of the source."""
NO_TEMPORARY = (
    "submissions have no /tmp of their own on this worker: use `tempfile`, whose folder is the submission's, or a "
    "relative path"
)
"""The hint for a source that was refused a path below /tmp. Another worker may allow it one."""
OPERATORS_PART = "its operator"
"""Begins what a worker's operator does about a part that is missing there. The source passes once it is done."""
LOST_EXIT = 71
"""Exit status of a pool child that can no longer use its device, so that it can judge no other job."""


_PASSING = re.compile(
    r"\b[Kk]illed\b|\bTerminated\b|terminated with signal|died (?:due to|with)|"
    r"No space left|Disk quota|Read-only file system|Input/output error|Stale file handle|Too many open files|"
    r"[Cc]annot allocate memory|[Mm]emory allocation failure|[Oo]ut of memory|memory exhausted|bad_alloc|"
    r"for want of memory|"
    r"Resource temporarily unavailable|can't start new thread|[Cc]annot fork|"
    rf"{DRIVER_FAILED}: |"
    r"[Ii]nternal (?:compiler )?error|[Ss]egmentation fault|SIGSEGV|Bus error|core dumped|"
    r"NVRTC_ERROR_(?!COMPILATION)\w+|(?:status|code)[ =](?:-\d|13[4-9]|143)"
)


class KernelFault(Exception):
    """The submission failed; the fault becomes its verdict.

    `message` tells the caller what happened and what to do next; `log` is the whole text of a compiler or traceback.
    `compiled` says that the source compiled although nothing ran (CUDA on a worker without a device). `lacks` says what
    the worker lacks, where no kernel is at fault (UNSUPPORTED).
    """

    def __init__(
        self, status: Status, message: str, log: str = "", *, compiled: bool = False, lacks: Lack | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.log = log
        self.compiled = compiled
        self.lacks = lacks


class OutputFault(KernelFault):
    """The kernel's output has a form that cannot be compared.

    The status is UNSUPPORTED. If the reference's output can be compared, `as_wrong_result` makes it a wrong result.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(Status.UNSUPPORTED, message, log)

    def as_wrong_result(self) -> KernelFault:
        message = f"the kernel's output has another form than the reference's: {self.message}"
        return KernelFault(Status.WRONG_RESULT, message, self.log)


class InfrastructureFault(Exception):
    """The service failed, not the kernel: the job is retried, then ends as `failed`."""


class Unproven(InfrastructureFault):
    """Only an untrusted process says that the machine failed: retried, but no evidence against the worker."""


class JobCancelled(Exception):
    """The job's owner cancelled it while it ran."""


def clear_exception_frames(error: BaseException | None) -> None:
    """Clears the frames of an error and its causes, whose variables would live as long as the error.

    Skips frames that still run, and closes generators that are suspended in one.
    """
    for each in exception_chain(error):
        traceback.clear_frames(each.__traceback__)


def exception_chain(error: BaseException | None) -> list[BaseException]:
    """The error, its causes and contexts; each once."""
    chain: list[BaseException] = []
    pending = [error]
    while pending:
        current = pending.pop()
        if current is not None and all(current is not other for other in chain):
            chain.append(current)
            pending += [current.__cause__, current.__context__]
    return chain


def may_pass_again(text: str) -> bool:
    """Whether a compile error with that text may pass later or elsewhere: it is not cached, shared or reused."""
    return NO_TEMPORARY in text or f": {OPERATORS_PART} " in text or _PASSING.search(text) is not None
