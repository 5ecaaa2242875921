"""Attributes a failure to the card, by the driver's reports, or by a test runner if the failure looks like the card's.

NVML's events bring the reports, but some containers lack them. A failing card is then an exception in the kernel.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status
from profiling.gpu.monitor import CardUnavailable
from profiling.gpu.xid_errors import CardError
from sandbox.isolation.scratch_dir import remove
from tasks.builds.build_session import deadline_in
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext

TEST_S = 60.0
REPORT_S = 0.1
"""Seconds to wait for the driver's report, which may come a moment after the kernel's failure."""
CARD_ERROR = re.compile(
    r"uncorrectable|ECCUncorrectable|fallen off the bus|GPU[ _]is[ _]lost|busy or unavailable|Devices?_?Unavailable"
    r"|no CUDA-capable device|No CUDA GPUs are available|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|Found no NVIDIA driver"
    r"|CUDA[^\n]{0,40}initialization error|cudaErrorInitializationError|CUDA_ERROR_NOT_INITIALIZED"
    r"|CUDA[^\n]{0,40}unknown error|cudaErrorUnknown|CUDA_ERROR_UNKNOWN|hardware error|cudaErrorSystemNotReady"
    r"|CUDA_ERROR_SYSTEM_NOT_READY|system not yet initialized|SystemDriverMismatch|SYSTEM_DRIVER_MISMATCH",
    re.IGNORECASE,
)
"""Errors that a wrong kernel on a sound card does not cause: failed launches and illegal addresses are not included.

The referee searches text of the submission. No part of the pattern may match without a length limit, because the
search would then take quadratic time.
"""
MAX_SEARCHED_CHARS = 1 << 15
"""Characters searched at either end of each text, so that a long text does not delay the referee."""

_FIRST, _LAST = slice(MAX_SEARCHED_CHARS), slice(-MAX_SEARCHED_CHARS, None)

log = logging.getLogger(__name__)


def new_card_errors(kernel_runs: Iterable[KernelRun], worker: WorkerContext) -> list[CardError] | CardUnavailable:
    """The driver's reports of card errors since the last call; waits up to REPORT_S for one if a kernel failed."""
    failed = any(kernel_run.fault is not None for kernel_run in kernel_runs)
    return worker.card_errors.take_new(REPORT_S if failed else 0.0)


def raise_reported_card_fault(errors: list[CardError] | CardUnavailable | None) -> None:
    """Raise InfrastructureFault if the card itself failed: no failure on it is a kernel's fault then."""
    if isinstance(errors, list) and (card_faults := [error for error in errors if error.is_hardware_fault]):
        raise InfrastructureFault(
            "; ".join(f"the driver reported Xid {error.xid}: {error.meaning}" for error in card_faults)
        )


def raise_tested_card_fault(kernel_runs: Iterable[KernelRun], job: JobContext) -> None:
    """Raise InfrastructureFault if a kernel failed like on a failing card, and a runner without a submission fails too.

    The failure's text comes from the submission, so it proves nothing by itself. The caller holds the device's lease.
    The test ends the kernels' runners, because they may hold all device memory. Raises JobCancelled.
    """
    worker = job.worker
    if not worker.device.is_cuda:
        return
    suspects = [kernel_run for kernel_run in kernel_runs if _names_card_error(kernel_run)]
    if not suspects:
        return
    for kernel_run in kernel_runs:
        kernel_run.close()
    folder = worker.private_folder(worker.folder / "test")
    try:
        session = worker.session(folder, gpu=True, deadline=deadline_in(TEST_S), cancelled=job.cancelled)
        try:
            session.open_device()
            session.wait_until_open()
            session.warm_libraries()
            session.wait_until_open()
        finally:
            session.close()
    except KernelFault as fault:
        if fault.status is Status.OUT_OF_MEMORY:
            return  # Another process holds the memory, which says nothing about the card.
        raise InfrastructureFault(f"the card fails in a runner without a submission too: {fault}") from fault
    finally:
        remove(folder)
    log.info(
        "the %s failed like on a failing card, but the card works in a runner without a submission", suspects[0].role
    )


def _names_card_error(kernel_run: KernelRun) -> bool:
    """Whether the failure names a card error. Printed output counts: a C++ library that throws aborts the process."""
    fault = kernel_run.fault
    if fault is None or fault.status not in (Status.RUNTIME_ERROR, Status.CRASHED):
        return False
    printed = kernel_run.session.runner.output.text() if kernel_run.session is not None else kernel_run.output
    ends = (text[part] for text in (fault.message, fault.log, printed) for part in (_FIRST, _LAST))
    return any(CARD_ERROR.search(text) for text in ends)
