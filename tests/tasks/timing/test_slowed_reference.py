"""On the host nobody runs in another's windows, and who seems to have is judged anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from domain.flags import FlagCode
from domain.result import CANDIDATE, REFERENCE, Status
from sandbox.supervisor.runner_process import RunnerProcess
from tasks.correctness.distribution_check import DistributionCheck
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import INPUTS, SOFTMAX, forward, judged, kernel, opened
from tests.tasks.watching import WATCHING, stood_still_s


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    yield from opened()


@pytest.mark.parametrize(("times", "status"), [(1, Status.PASSED), (1000, Status.CRASHED)], ids=["once", "always"])
def test_who_seems_once_not_to_have_stood_still_is_judged_anew(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, times: int, status: Status
) -> None:
    """On a busy host he can seem so by the host's doing. Here somebody lets the kernel's process go on."""
    freeze, left = RunnerProcess.freeze, iter(range(times))

    def undone(self: RunnerProcess) -> int:
        since = freeze(self)
        if next(left, None) is not None:
            os.kill(self.pid, signal.SIGCONT)
        return since

    monkeypatch.setattr(RunnerProcess, "freeze", undone)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    if status is Status.CRASHED:
        assert Status.CRASHED in (report.outcome.status, report.reference and report.reference.status)
        assert next(left) < 10, "twice is enough"
    else:
        assert report.outcome.status is Status.PASSED and report.outcome.timing is not None, report.outcome
    assert report.environment["device_seconds"] > 0


@pytest.mark.parametrize("role", [REFERENCE, CANDIDATE])
def test_so_is_who_seems_so_on_other_inputs(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """Of these nothing is said by that."""
    freeze, outputs, undone = RunnerProcess.freeze, DistributionCheck._outputs, []

    def armed(self: DistributionCheck, kernel_run: KernelRun) -> Any:
        if kernel_run.role == role and not undone and kernel_run.session is not None:
            undone.append(kernel_run.session.runner.pid)
        return outputs(self, kernel_run)

    def undo(self: RunnerProcess) -> int:
        since = freeze(self)
        if self.pid in undone:
            os.kill(self.pid, signal.SIGCONT)
        return since

    monkeypatch.setattr(DistributionCheck, "_outputs", armed)
    monkeypatch.setattr(RunnerProcess, "freeze", undo)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    assert undone and report.outcome.status is Status.PASSED, report.outcome
    assert report.outcome.inputs["distributions"]["checked"], report.outcome.inputs


def test_what_the_candidate_slows_beside_it_is_taken_out_of_the_times(worker: WorkerContext) -> None:
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
    assert report.outcome.timing is not None and report.reference is not None and report.reference.timing is not None
    assert FlagCode.REFERENCE_SLOWED in codes(report.outcome.timing.flags)
    assert report.reference.timing.latency_ms < 50


def test_on_the_host_nobody_runs_beside_the_others_windows(worker: WorkerContext) -> None:
    slow = SOFTMAX.replace("return torch.softmax", "import time; time.sleep(0.3); return torch.softmax")
    report = judged(worker, forward("return torch.softmax(x, -1)", WATCHING), kernel(slow))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None
    assert stood_still_s(report.outcome.output) >= 0.3 * report.outcome.timing.windows
