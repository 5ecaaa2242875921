"""Ends the runners of a job: at once, or after the report is made, if no other job's windows suffer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from domain.fault import JobCancelled
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext


def stop(contenders: Sequence[KernelRun]) -> None:
    """Signals every runner to end, and does not wait for it."""
    for contender in contenders:
        contender.stop()


def close(contenders: Sequence[KernelRun]) -> None:
    """Ends every runner."""
    stop(contenders)
    for contender in contenders:
        contender.close()


def end(contenders: Sequence[KernelRun], bench: WorkerContext, deferred: ExitStack) -> None:
    """Ends runners that were stopped, at once or when `deferred` is closed; collects what they printed either way.

    Deferred runners hold the lock against context creation from now on, so that other jobs' windows wait for their
    end. Where another process holds that lock now, closing `deferred` takes it.
    """
    if not bench.device.has_room:
        close(contenders)
        return
    try:
        deferred.enter_context(bench.block_context_creation(lambda: True))
        deferred.callback(close, contenders)
    except (
        JobCancelled
    ):  # Another process makes contexts now, perhaps for long. Runners that end disturb no window then.
        deferred.callback(_close_in_line, contenders, bench)
    for contender in contenders:
        contender.collect_output()


def _close_in_line(contenders: Sequence[KernelRun], bench: WorkerContext) -> None:
    """Ends the runners, and until they are dead waits for the lock, so that no one gets it before that."""
    with ExitStack() as line:
        with suppress(JobCancelled):
            line.enter_context(
                bench.block_context_creation(lambda: not any(contender.alive for contender in contenders))
            )
        close(contenders)
