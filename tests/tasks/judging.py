"""Jobs for the pipeline on the CPU, judged in this process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from domain.job import Stage
from domain.request import Request
from domain.result import Report
from sandbox.supervisor.session import Session
from tasks.evaluation.pipeline import run
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.kept_runner import WarmRunner
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

INPUTS = "\ndef get_inputs():\n    return [torch.randn(64, 32)]\n"

CHAIN = "y = x\n        for _ in range(200): y = torch.cos({})\n        return y"

SOFTMAX = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)" + INPUTS


def opened() -> Iterator[WorkerContext]:
    """A worker of a module's own, with a gibibyte for each runner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNNER_MEMORY_MIB", "1024")
        with own_worker() as made:
            yield made


def kernel(source: str, kernel_type: str = "torch", **more: Any) -> dict[str, Any]:
    return {"source_code": source, "kernel_type": kernel_type, **more}


def forward(expression: str, before: str = "") -> dict[str, Any]:
    return kernel(f"{before}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {expression}\n")


def wait_for_end(session: Session) -> None:
    deadline = time.monotonic() + 30
    while session.runner.alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def killing(warm: WarmRunner | None) -> tuple[JobCallbacks, list[int]]:
    """Callbacks that kill the kept runner as its next job is timed, and the pids that they killed."""
    assert warm is not None
    pid, killed = warm.runner.session.runner.pid, list[int]()

    def kill(stage: Stage) -> None:
        if stage is Stage.TIME and not killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    return JobCallbacks(kill), killed


def judged(
    worker: WorkerContext, candidate: dict[str, Any], reference: dict[str, Any] | None = None, **more: Any
) -> Report:
    wire = {"kernel": candidate, "reference": reference, "num_trials": 5, "timeout": 30, "atol": 1e-2, "rtol": 1e-2}
    return run(Request.from_wire(wire | more), worker)


def compared(worker: WorkerContext, candidate: dict[str, Any], **more: Any) -> tuple[Report, list[bool]]:
    told: list[bool] = []
    wire = {"kernel": candidate, "reference": kernel(SOFTMAX), "num_trials": 20, "timeout": 30}
    report = run(Request.from_wire(wire | more), worker, JobCallbacks(on_interim_result=told.append))
    return report, told
