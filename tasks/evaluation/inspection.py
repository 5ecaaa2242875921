"""Runs the tools that a request asked for, once verdict and times are final."""

from __future__ import annotations

from typing import Any

from domain.job import Stage
from tasks.diagnostics.ncu_stage import read_counters
from tasks.diagnostics.sanitizer_stage import run_sanitizer
from tasks.diagnostics.tool_run import Inspection
from tasks.evaluation.device_scope import DeviceScope
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.teardown import close


def inspect(job: JobContext, kernel_runs: list[KernelRun], device: DeviceScope) -> dict[str, Any] | None:
    """Run profilers and sanitizers, which slow a kernel down, after the runners ended; returns the counters, if any.

    Without example inputs no tool calls a kernel, and that is recorded; the job need not hold the device then. Raises
    JobCancelled.
    """
    request = job.request
    if request.device_metrics is None and not request.sanitize:
        return None
    job.enter(Stage.INSPECT)
    weights = device.weights.shared if device.weights is not None else {}
    inspection = Inspection(job, kernel_runs, device.example, weights)
    if device.example:
        close(kernel_runs)
        device.note_card_errors()  # A sanitizer's finding may make the driver report the error once more.
        device.release()
    metrics = read_counters(inspection, request.device_metrics) if request.device_metrics is not None else None
    if request.sanitize:
        inspection.candidate.diagnosis.sanitizer = run_sanitizer(inspection)
    return metrics
