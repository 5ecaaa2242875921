"""A candidate that slows its reference gains no speed-up by it."""

from __future__ import annotations

from domain.flags import FlagCode
from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import INPUTS, judged, kernel


def test_slowed_reference_is_flagged_and_gives_no_speedup(worker: WorkerContext) -> None:
    # Of what both can open, nothing can be written, but it can be locked.
    reference = f"""
import colorsys, fcntl, time, torch
file = open(colorsys.__file__)
def kernel_fn(x):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    except BlockingIOError:
        time.sleep(0.1)
    time.sleep(0.005)
    return x * 2{INPUTS}
"""
    candidate = """
import colorsys, fcntl
file = open(colorsys.__file__)
fcntl.flock(file, fcntl.LOCK_EX)
def kernel_fn(x): return x * 2
"""
    report = judged(worker, kernel(candidate), kernel(reference))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None
    assert FlagCode.REFERENCE_SLOWED in codes(report.outcome.timing.flags)
    assert report.speedup is None
    assert "windows of the reference took" in report.speedup_unavailable_reason()
