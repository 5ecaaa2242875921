"""A reference that is slow in its first calls, or a candidate that is warm before them: both are timed alike."""

from __future__ import annotations

from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import INPUTS, judged, kernel

SLEEP_S = 0.05
COLD = f"""
import time
calls = 0
def kernel_fn(x):
    global calls
    calls += 1
    if calls <= 3:
        time.sleep({SLEEP_S})
    time.sleep(0.002)
    return x * 2{INPUTS}
"""
WARM = """
import time, torch
def kernel_fn(x):
    time.sleep(0.002)
    return x * 2
for _ in range(1000):
    torch.ones(64, 32) * 2
"""


def test_calls_that_only_a_new_process_makes_slowly_are_no_part_of_a_time(worker: WorkerContext) -> None:
    report = judged(worker, kernel(WARM), kernel(COLD))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.reference is not None and report.reference.timing is not None
    assert report.reference.timing.latency_ms < SLEEP_S * 1e3 / 3
    assert report.speedup is not None and report.speedup.ratio < 2
