"""Whether it was the card that failed: by the driver's reports, and by a runner of our own where a kernel says so.

Reports come by NVML's events, which some containers do not have. There a failing card is an exception in the kernel.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status
from profiling.gpu.monitor import CardUnavailable
from profiling.gpu.xid_errors import CardError
from sandbox.isolation.scratch_dir import remove
from tasks.builds.build_session import deadline_in
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext

TEST_S = 60.0
REPORT_S = 0.1
"""A driver's report may come a moment after the kernel's failure."""
OF_A_CARD = re.compile(
    r"uncorrectable|ECCUncorrectable|fallen off the bus|GPU[ _]is[ _]lost|busy or unavailable|Devices?_?Unavailable"
    r"|no CUDA-capable device|No CUDA GPUs are available|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|Found no NVIDIA driver"
    r"|CUDA[^\n]{0,40}initialization error|cudaErrorInitializationError|CUDA_ERROR_NOT_INITIALIZED"
    r"|CUDA[^\n]{0,40}unknown error|cudaErrorUnknown|CUDA_ERROR_UNKNOWN|hardware error|cudaErrorSystemNotReady"
    r"|CUDA_ERROR_SYSTEM_NOT_READY|system not yet initialized|SystemDriverMismatch|SYSTEM_DRIVER_MISMATCH",
    re.IGNORECASE,
)
"""What a wrong kernel on a sound card does not cause; a launch that failed and an illegal address are not among it.

Looked for in a submission's own words: nothing in it may be of any length, or to look takes the square of theirs.
"""
LOOKED_THROUGH = 1 << 15
"""Characters at either end of each text: nobody is to wait for a mebibyte to be searched."""

_FIRST, _LAST = slice(LOOKED_THROUGH), slice(-LOOKED_THROUGH, None)

log = logging.getLogger(__name__)


def reported(contenders: Iterable[KernelRun], bench: WorkerContext) -> list[CardError] | CardUnavailable:
    """What the driver has said of the card since it was last asked; where a kernel has failed, within REPORT_S."""
    failed = any(contender.fault is not None for contender in contenders)
    return bench.card_errors.new(REPORT_S if failed else 0.0)


def blame_reported(errors: list[CardError] | CardUnavailable | None) -> None:
    """Raises InfrastructureFault where the card itself has failed: nothing that it did is a kernel's fault."""
    if isinstance(errors, list) and (own := [error for error in errors if error.of_card]):
        raise InfrastructureFault("; ".join(f"the driver reported Xid {each.xid}: {each.meaning}" for each in own))


def blame_tested(contenders: Iterable[KernelRun], bench: WorkerContext, cancelled: Callable[[], bool]) -> None:
    """Raises InfrastructureFault where a kernel failed as by a failing card, and a runner of our own fails too.

    The text is the submission's own word, so that it never counts by itself. Needs the device's lease; ends the
    contenders' runners where it tests, as they may hold all of the memory. Raises JobCancelled.
    """
    if not bench.device.is_cuda:
        return
    suspects = [contender for contender in contenders if _names_a_card(contender)]
    if not suspects:
        return
    for contender in contenders:
        contender.close()
    folder = bench.private_folder(bench.folder / "test")
    try:
        session = bench.session(folder, gpu=True, deadline=deadline_in(TEST_S), cancelled=cancelled)
        try:
            session.open_device()
            session.opened()
            session.warm_libraries()
            session.opened()
        finally:
            session.close()
    except KernelFault as fault:
        if fault.status is Status.OUT_OF_MEMORY:
            return  # Somebody else holds it: that says nothing of the card.
        raise InfrastructureFault(f"the card fails in a runner without a submission too: {fault}") from fault
    finally:
        remove(folder)
    log.info("the %s failed as by a failing card, which works in a runner of our own", suspects[0].role)


def _names_a_card(contender: KernelRun) -> bool:
    """Also in what it printed: a library in C++ that throws aborts the process."""
    fault = contender.fault
    if fault is None or fault.status not in (Status.RUNTIME_ERROR, Status.CRASHED):
        return False
    printed = contender.session.runner.output.text() if contender.session is not None else contender.output
    ends = (text[place] for text in (fault.message, fault.log, printed) for place in (_FIRST, _LAST))
    return any(OF_A_CARD.search(text) for text in ends)
