"""What is asked of the runners when the verdict and the time stand: for information, and for flags beside the time.

Nothing that a runner does here, its own death included, changes anything that was found before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from domain.fault import KernelFault
from domain.kernel import KernelType
from domain.result import Status, Timing, first_line
from profiling.gpu.measured_peaks import UNKNOWN, Ceilings
from profiling.launches.report import described, unavailable
from profiling.roofline.intensity import Work
from profiling.roofline.limits import too_few_operations
from sandbox.supervisor.session import Session
from tasks.correctness.input_batches import Arguments
from tasks.correctness.trials import Rounds
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.kernel_run import KernelRun

OPERATIONS_S = 15.0
SUSPICIOUS = 8.0
"""A time is flagged under an eighth of the operations at more than the card's rate, and the reference cannot be faster
than that rate: no smaller speed-up can be flagged, and counting holds the device."""
PROFILE_S = 15.0
"""The profiler's first start in a process takes a second or more; past this it is stopped, with the process."""
MAX_REASON = 512
MAX_BUILT_FILES = 64
MAX_BUILT_BYTES = 64 << 20
BUILT = ("*.cubin", "ext/**/*.so")
"""Where a build leaves device code: `backends.cuda.backend` and `backends.extensions.jit_build`."""

NOT_COUNTED = "whether this time is too short for {whose} arithmetic is not known: counting it failed ({why})"
NOT_REACHED = unavailable("the job ended before it came to this")


def look_at_work(contenders: list[KernelRun], rounds: Rounds, *, counting: bool) -> None:
    """What a call moves and, with `counting`, computes, for its place beneath the card's rates, where known."""
    ceilings = rounds.bench.ceilings()
    timed = [(contender, contender.timing) for contender in contenders if contender.timing is not None]
    if not timed or ceilings == UNKNOWN:
        return
    flops = _operations(timed, contenders[0], rounds, ceilings) if counting else None
    for contender, _ in timed:
        contender.work = Work(rounds.tensor_bytes(contender), flops, ceilings)


def _operations(
    timed: list[tuple[KernelRun, Timing]], owner: KernelRun, rounds: Rounds, ceilings: Ceilings
) -> dict[str, float] | None:
    """Those of the reference (where there is none, of the kernel); every time too short for them is flagged.

    Known only where that is made of torch's operators, whose counter it asks.
    """
    if owner.session is None or owner.kernel.kernel_type is not KernelType.TORCH:
        return None
    try:
        flops = _hurried(owner.session, OPERATIONS_S, rounds.deadline).flops(rounds.example[owner.role])
        failed = "a call cannot be counted" if flops is None else ""
    except KernelFault as fault:
        flops, late = None, fault.status is Status.TIMEOUT
        failed = "it was stopped" if late else first_line(owner.redact_paths(fault.message))
    for contender, timing in timed:
        whose = "its own" if contender is owner else "the reference's"
        if flops is None:
            timing.flags.append(NOT_COUNTED.format(whose=whose, why=failed))
            continue
        flag = too_few_operations(
            timing.trusted_ms, flops, ceilings, whose=whose, resolution_ms=timing.resolution_us / 1e3
        )
        if flag is not None:
            timing.flags.append(flag)
    return flops


def look_at_launches(contenders: list[KernelRun], example: dict[str, Arguments], deadline: float) -> None:
    """One profiled call of each, the last thing that its runner is asked. What is odd about it is flagged."""
    for contender in contenders:
        if contender.session is None:
            continue
        try:
            trace = _hurried(contender.session, PROFILE_S, deadline).profile(example[contender.role])
        except KernelFault as fault:
            contender.launches = unavailable(_reason(fault, contender.folder))
            continue
        finally:
            contender.close()  # Nobody is left who could change its files while they are read.
        contender.launches = described(trace, contender.kernel, _built_into(contender.folder))
        if contender.timing is not None:
            contender.timing.flags.extend(contender.launches["flags"])


def _hurried(session: Session, seconds: float, deadline: float) -> Session:
    session.runner.deadline = min(deadline, time.monotonic() + seconds)
    return session


def _reason(fault: KernelFault, folder: Path) -> str:
    if fault.status is Status.TIMEOUT:
        return f"the profiled call was stopped after {PROFILE_S:g} s, or at the end of the job's timeout"
    return without_machine_paths(f"the profiled call failed: {fault.message}"[:MAX_REASON], folder)


def _built_into(folder: Path) -> Callable[[str], bool]:
    """Whether a part of a symbol's name occurs in what the submission was built to. Read as bytes, never loaded."""
    code, left = [], MAX_BUILT_BYTES
    for path in islice((path for pattern in BUILT for path in folder.glob(pattern)), MAX_BUILT_FILES):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            code.append(file.read(left))
        left -= len(code[-1])
    return lambda part: any(part.encode(errors="replace") in text for text in code)
