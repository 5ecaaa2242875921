"""Judges a job again in new processes, if one of earlier jobs may be to blame for what was found (ADR 37, ADR 40)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from domain.fault import InfrastructureFault
from domain.result import Report, Status
from tasks.diagnostics.gpu_fault_attribution import raise_reported_card_fault
from tasks.evaluation.device_scope import DeviceScope
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.stream_isolation import RestartJob

INFRASTRUCTURE_ERROR = "infrastructure_error"


def judge_again_if_doubtful(
    job: JobContext, kernel_runs: Sequence[KernelRun], device: DeviceScope, report: Report
) -> None:
    """Raises RestartJob for a candidate that did not pass, or a reference that failed, in a process of earlier jobs.

    The time of this attempt does not count as the job's: what was slow may be an earlier job's doing.
    """
    passed = report.outcome.status is Status.PASSED
    doubtful = [run for run in kernel_runs if run.fault is not None or (run is kernel_runs[-1] and not passed)]
    _restart_without_used(job, doubtful, device, report.outcome.status)


@contextmanager
def judged_again_after_our_fault(
    job: JobContext, kernel_runs: Sequence[KernelRun], device: DeviceScope
) -> Iterator[None]:
    """A block whose InfrastructureFault becomes RestartJob where a kernel has a process of earlier jobs.

    A fault of the card stays one: no new process on it is a better one.
    """
    try:
        yield
    except InfrastructureFault:
        raise_reported_card_fault(device.use.card_errors)
        _restart_without_used(job, kernel_runs, device, INFRASTRUCTURE_ERROR)
        raise


def _restart_without_used(job: JobContext, doubtful: Sequence[KernelRun], device: DeviceScope, verdict: str) -> None:
    """Raises RestartJob if one of the kernels has a process of earlier jobs."""
    roles = {kernel_run.role for kernel_run in doubtful if kernel_run.earlier_jobs}
    if roles:
        roles |= job.queues.new_process_roles
        queues = replace(job.queues, new_process_roles=frozenset(roles), used_process_verdict=verdict)
        raise RestartJob(replace(queues, left_bytes=device.left_bytes, held_s=job.queues.held_s + device.use.held_s))
