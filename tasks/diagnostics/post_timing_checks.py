"""Requests to the runners after verdict and time are final: for information, and for flags beside the time.

Nothing that a runner does here changes an earlier result, not even its death.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.kernel import KernelType
from domain.result import Status, Timing, first_line
from profiling.gpu.measured_peaks import UNKNOWN, Ceilings
from profiling.launches.report import described, unavailable
from profiling.roofline.intensity import Work
from profiling.roofline.limits import too_few_operations
from sandbox.supervisor.session import Session
from tasks.correctness.trials import Trials
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.time_budget import TimeBudget

OPERATIONS_S = 15.0
SUSPICIOUS = 8.0
"""Speed-up above which operations are counted. A time is flagged if it is under an eighth of what the operations take
at the card's rate. As the reference cannot exceed that rate, no smaller speed-up can be flagged. Counting holds the
device."""
MAX_COUNTED_MS = 1000.0
"""Longest call whose operations are counted only to place it, in ms: a stop at OPERATIONS_S would end its runner."""
PROFILE_S = 15.0
"""Maximum seconds of a profiled call. The profiler's first start in a process takes a second or more."""
MAX_REASON = 512
MAX_BUILT_FILES = 64
MAX_BUILT_BYTES = 64 << 20
BUILT = ("*.cubin", "ext/**/*.so")
"""Patterns of files with device code that `backends.cuda.backend` and `backends.extensions.jit_build` leave."""

NOT_COUNTED = "whether this time is too short for {whose} arithmetic is not known: counting it failed ({why})"
NOT_REACHED = unavailable("the job ended before it came to this")


def measure_work(kernel_runs: list[KernelRun], trials: Trials, *, checking: bool) -> None:
    """Record the bytes that a call moves and, at a thorough budget, its operations, to place it under the card's peaks.

    With `checking`, operations are counted at any budget, and a count that fails is a flag.
    """
    ceilings = trials.worker.ceilings()
    timed = [(kernel_run, kernel_run.timing) for kernel_run in kernel_runs if kernel_run.timing is not None]
    if not timed or ceilings == UNKNOWN:
        return
    flops = None
    if checking or (trials.request.thorough and kernel_runs[0].estimate_ms <= MAX_COUNTED_MS):
        flops = _operations(timed, kernel_runs[0], trials, ceilings, checking=checking)
    for kernel_run, _ in timed:
        kernel_run.diagnosis.work = Work(trials.tensor_bytes(kernel_run), flops, ceilings)


def _operations(
    timed: list[tuple[KernelRun, Timing]], owner: KernelRun, trials: Trials, ceilings: Ceilings, *, checking: bool
) -> dict[str, float] | None:
    """Operations of a call of the reference (or of the kernel, without one); flags every time too short for them.

    Known only for sources made of torch's operators, which torch's own counter counts.
    """
    if owner.session is None or owner.kernel.kernel_type is not KernelType.TORCH:
        return None
    try:
        flops = _limited(owner.session, OPERATIONS_S, trials.budget).flops(trials.example[owner.role])
        failed = "a call cannot be counted" if flops is None else ""
    except KernelFault as fault:
        flops, late = None, fault.status is Status.TIMEOUT
        failed = "it was stopped" if late else first_line(owner.redact_paths(fault.message))
    for kernel_run, timing in timed:
        counted_side = "its own" if kernel_run is owner else "the reference's"
        if flops is None:
            if checking:
                message = NOT_COUNTED.format(whose=counted_side, why=failed)
                timing.flags.append(Flag(FlagCode.OPERATIONS_NOT_COUNTED, message, {"reason": failed}))
            continue
        flag = too_few_operations(
            timing.latency_ms, flops, ceilings, whose=counted_side, resolution_ms=timing.resolution_us / 1e3
        )
        if flag is not None:
            timing.flags.append(flag)
    return flops


def trace_launches(kernel_runs: list[KernelRun], trials: Trials) -> None:
    """Profile one call of each kernel, as the last request to its runner; flag what is suspicious about it."""
    for kernel_run in kernel_runs:
        if kernel_run.session is None:
            continue
        try:
            trace = _limited(kernel_run.session, PROFILE_S, trials.budget).profile(trials.example[kernel_run.role])
        except KernelFault as fault:
            kernel_run.diagnosis.launches = unavailable(_reason(fault, kernel_run.folder))
            continue
        finally:
            kernel_run.close()  # Its files are read next, so no process may be left that could change them.
        launches = described(trace, kernel_run.kernel, _built_into(kernel_run.folder))
        kernel_run.diagnosis.launches = launches
        if kernel_run.timing is not None:
            kernel_run.timing.flags.extend(map(Flag.from_dict, launches["flags"]))


def _limited(session: Session, seconds: float, budget: TimeBudget) -> Session:
    session.set_deadline(budget.within(seconds))
    return session


def _reason(fault: KernelFault, folder: Path) -> str:
    if fault.status is Status.TIMEOUT:
        return f"the profiled call was stopped after {PROFILE_S:g} s, or at the end of the job's timeout"
    return without_machine_paths(f"the profiled call failed: {fault.message}"[:MAX_REASON], folder)


def _built_into(folder: Path) -> Callable[[str], bool]:
    """A predicate for symbol names: whether the built files contain that part of a name. Reads bytes, loads nothing."""
    code, left = [], MAX_BUILT_BYTES
    for path in islice((path for pattern in BUILT for path in folder.glob(pattern)), MAX_BUILT_FILES):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            code.append(file.read(left))
        left -= len(code[-1])
    return lambda part: any(part.encode(errors="replace") in text for text in code)
