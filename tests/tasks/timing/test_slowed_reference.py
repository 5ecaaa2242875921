"""A candidate that slows its reference gains no speed-up by it."""

from __future__ import annotations

from domain.flags.codes import FlagCode
from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import INPUTS, judged, kernel

# Of what both can open, nothing can be written, but it can be locked.
REFERENCE = f"""
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


def test_slowed_reference_is_flagged_and_gives_no_speedup(worker: WorkerContext) -> None:
    candidate = """
import colorsys, fcntl
file = open(colorsys.__file__)
fcntl.flock(file, fcntl.LOCK_EX)
def kernel_fn(x): return x * 2
"""
    report = judged(worker, kernel(candidate), kernel(REFERENCE))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None
    assert FlagCode.REFERENCE_SLOWED in codes(report.outcome.timing.flags)
    assert report.speedup is None
    assert "windows of the reference took" in report.speedup_unavailable_reason()


def test_reference_slowed_in_forward_passes_alone_gives_these_no_speedup(worker: WorkerContext) -> None:
    candidate = """
import colorsys, fcntl, torch
file = open(colorsys.__file__)
fcntl.flock(file, fcntl.LOCK_EX)
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, gradient):
        fcntl.flock(file, fcntl.LOCK_UN)
        return gradient * 2
def kernel_fn(x): return Double.apply(x)
"""
    report = judged(worker, kernel(candidate), kernel(REFERENCE), gradients=True)
    assert report.outcome.timing is not None and report.outcome.gradients is not None, report.outcome.message
    forward = report.outcome.gradients.forward
    assert forward is not None and FlagCode.REFERENCE_SLOWED in codes(forward.flags)
    assert FlagCode.REFERENCE_SLOWED not in codes(report.outcome.timing.flags)
    speedups = report.body("id")["kernel_exec_result"]["gradients"]["speedup"]
    assert speedups == {"forward": None, "backward": None}
