"""The exit statuses of the command line, and the status of each error."""

from __future__ import annotations

from enum import IntEnum

from kernel_eval_client.errors import JobCancelled, KernelEvalError, RateLimited, ServiceError, StillRunning


class Exit(IntEnum):
    """The exit status of a command: of many kernels the highest of any, but UNSUPPORTED only beside PASSED."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    SERVICE = 3
    STILL_RUNNING = 4
    CANCELLED = 5
    UNSUPPORTED = 6
    INTERRUPTED = 130


MEANINGS = {
    Exit.PASSED: "done; where a kernel was judged, it passed",
    Exit.FAILED: "a kernel was judged and did not pass, is not fit, or its speed-up was not confirmed",
    Exit.USAGE: "the command line, a file or the request is at fault, or the API key was refused",
    Exit.SERVICE: "the service is at fault, cannot be reached, or has had too many requests of this key",
    Exit.STILL_RUNNING: "the time to wait is over and the job goes on",
    Exit.CANCELLED: "the job was cancelled",
    Exit.UNSUPPORTED: "no kernel of a suite failed, but the workers lack what some of them need",
    Exit.INTERRUPTED: "Ctrl-C",
}


def exit_of(error: KernelEvalError) -> Exit:
    """The exit status of an error, by whose fault it is."""
    if isinstance(error, StillRunning):
        return Exit.STILL_RUNNING
    if isinstance(error, JobCancelled):
        return Exit.CANCELLED
    return Exit.SERVICE if isinstance(error, (ServiceError, RateLimited)) else Exit.USAGE


def fault_of(error: KernelEvalError) -> str:
    """The party at fault, for programs: `caller`, `service` or `nobody`."""
    return {Exit.USAGE: "caller", Exit.SERVICE: "service"}.get(exit_of(error), "nobody")
