"""Ends the runners of a job: at once, or after the report is made, if no other job's windows suffer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from domain.fault import JobCancelled
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext


def stop(kernel_runs: Sequence[KernelRun]) -> None:
    """Signals every runner to end that is not to be kept, and does not wait for it."""
    for kernel_run in kernel_runs:
        if not kernel_run.stays:
            kernel_run.stop()


def close(kernel_runs: Sequence[KernelRun]) -> None:
    """Ends every runner."""
    stop(kernel_runs)
    for kernel_run in kernel_runs:
        kernel_run.close()


def end(kernel_runs: Sequence[KernelRun], worker: WorkerContext, deferred: ExitStack) -> None:
    """Ends runners that were stopped, at once or when `deferred` is closed; collects what they printed either way.

    Deferred runners hold the lock against context creation from now on, so that other jobs' windows wait for their
    end. Where another process holds that lock now, closing `deferred` takes it.
    """
    if not worker.device.has_room:
        _keep_or_close(kernel_runs, worker)
        return
    try:
        deferred.enter_context(worker.block_context_creation(lambda: True))
        deferred.callback(_keep_or_close, kernel_runs, worker)
    except (
        JobCancelled
    ):  # Another process makes contexts now, perhaps for long. Runners that end disturb no window then.
        deferred.callback(_close_in_line, kernel_runs, worker)
    for kernel_run in kernel_runs:
        kernel_run.collect_output()


def retire(kernel_run: KernelRun, worker: WorkerContext) -> None:
    """Ends a kernel's runner, or empties it if later jobs may have it: nothing of the kernel runs from now on."""
    if not worker.kept_runner(kernel_run.role).empty(kernel_run):
        kernel_run.close()


def _keep(kernel_runs: Sequence[KernelRun], worker: WorkerContext) -> None:
    for kernel_run in kernel_runs:
        if kernel_run.stays:
            worker.kept_runner(kernel_run.role).keep(kernel_run)


def _keep_or_close(kernel_runs: Sequence[KernelRun], worker: WorkerContext) -> None:
    _keep(kernel_runs, worker)
    close(kernel_runs)


def _close_in_line(kernel_runs: Sequence[KernelRun], worker: WorkerContext) -> None:
    """Ends the runners, and until they are dead waits for the lock, so that no one gets it before that."""
    _keep(kernel_runs, worker)
    stop(kernel_runs)
    with ExitStack() as line:
        with suppress(JobCancelled):
            line.enter_context(
                worker.block_context_creation(lambda: not any(kernel_run.alive for kernel_run in kernel_runs))
            )
        close(kernel_runs)
