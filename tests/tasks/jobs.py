"""What the tests of jobs share: requests, answers, waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Report, Status
from tasks.records import JobRecords, JobView

EVALUATE = Request(kernel=Kernel("class Model: ...", KernelType.TORCH), timeout=30)
COMPARE = Request(kernel=Kernel("__global__", KernelType.CUDA), reference=Kernel("class Model: ...", KernelType.TORCH))


def report(status: Status = Status.PASSED) -> Report:
    return Report(Outcome(status, "torch", compiled=status is not Status.COMPILE_ERROR), environment={"host": "here"})


def seen(records: JobRecords, job_id: str) -> JobView:
    view = records.get(job_id)
    assert view is not None
    return view


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as that holds; AssertionError when it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
