"""Faults of a kernel: an exception inside the service, a result for the caller."""

from __future__ import annotations

import traceback

from domain.result import Status

NO_TEMPORARY = (
    "submissions have no /tmp of their own on this worker: use `tempfile`, whose folder is the submission's, or a "
    "relative path"
)
"""The hint for a source that was refused a path below /tmp. Another worker may allow it one."""
LOST_EXIT = 71
"""Of a process that can no longer use its device: no other job can be judged in it."""


class KernelFault(Exception):
    """The submission failed in a way that is a result, not an error of the service.

    `message` is for the caller: what happened and what to do next; `log` is compiler or traceback text, whole;
    `compiled` says that the source did compile although nothing ran (CUDA on a worker without a device).
    """

    def __init__(self, status: Status, message: str, log: str = "", *, compiled: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.log = log
        self.compiled = compiled


class NotStill(KernelFault):
    """Its processes were to stand still, and it looks as if they had not: on a busy host that can be wrong.

    So a job in which it is so for the first time is judged anew.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Status.CRASHED, message)


class OutputFault(KernelFault):
    """The kernel's output has a form that cannot be compared.

    The status is UNSUPPORTED; beside a reference whose output can be compared it is a wrong result
    (`as_wrong_result`).
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(Status.UNSUPPORTED, message, log)

    def as_wrong_result(self) -> KernelFault:
        message = f"the kernel's output has another form than the reference's: {self.message}"
        return KernelFault(Status.WRONG_RESULT, message, self.log)


class InfrastructureFault(Exception):
    """The service failed, not the kernel: the job is retried, then ends as `failed`."""


class Unproven(InfrastructureFault):
    """A fault of the machine by the text of an untrusted process alone: retried, and no evidence against the worker."""


class JobCancelled(Exception):
    """The job's owner cancelled it while it ran."""


def let_go_of_frames(error: BaseException | None) -> None:
    """Of those that it came through, and the errors behind it: their variables live as long as it does.

    A frame that still runs keeps its own; a generator that waits in one is closed.
    """
    for each in behind(error):
        traceback.clear_frames(each.__traceback__)


def behind(error: BaseException | None) -> list[BaseException]:
    """That one, what it was raised from, and what was being handled then; each once."""
    found: list[BaseException] = []
    left = [error]
    while left:
        each = left.pop()
        if each is not None and all(each is not other for other in found):
            found.append(each)
            left += [each.__cause__, each.__context__]
    return found
