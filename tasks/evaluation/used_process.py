"""Judges a job again in a new process, if its candidate had one of earlier jobs and did not pass there (ADR 40)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from domain.fault import InfrastructureFault
from domain.result import Report, Status
from tasks.evaluation.device_scope import DeviceScope
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.stream_isolation import RestartJob

INFRASTRUCTURE_ERROR = "infrastructure_error"


def judge_again_if_doubtful(job: JobContext, kernel_runs: Sequence[KernelRun], report: Report) -> None:
    """Raises RestartJob unless the candidate passed, or had a new process.

    The time of this attempt does not count as the job's: what was slow may be an earlier job's doing.
    """
    if kernel_runs[-1].earlier_jobs and report.outcome.status is not Status.PASSED:
        raise _restart(job, report.outcome.status, report.device.held_s)


@contextmanager
def judged_again_after_our_fault(
    job: JobContext, kernel_runs: Sequence[KernelRun], device: DeviceScope
) -> Iterator[None]:
    """A block whose InfrastructureFault becomes RestartJob where the candidate has a process of earlier jobs."""
    try:
        yield
    except InfrastructureFault as fault:
        if not kernel_runs[-1].earlier_jobs:
            raise
        raise _restart(job, INFRASTRUCTURE_ERROR, job.queues.held_s + device.use.held_s) from fault


def _restart(job: JobContext, verdict: str, held_s: float) -> RestartJob:
    return RestartJob(replace(job.queues, used_process_verdict=verdict, held_s=held_s))
