"""How a job's runners end: all of them at once, and where that disturbs nobody, once the job's report is made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from domain.fault import JobCancelled
from tasks.runtime.kernel_run import Contender
from tasks.runtime.worker_context import Workbench


def stop(contenders: Sequence[Contender]) -> None:
    """Has the system end every runner, without waiting for it."""
    for contender in contenders:
        contender.stop()


def close(contenders: Sequence[Contender]) -> None:
    """Ends every runner."""
    stop(contenders)
    for contender in contenders:
        contender.close()


def end(contenders: Sequence[Contender], bench: Workbench, dying: ExitStack) -> None:
    """Of stopped runners: they are gone when this returns, or else when `dying` is closed. Others' windows wait for it,
    or where contexts are made at the moment, from when it begins to close.

    What they have printed is known either way.
    """
    if not bench.device.has_room:
        close(contenders)
        return
    try:
        dying.enter_context(bench.quiet(lambda: True))
        dying.callback(close, contenders)
    except JobCancelled:  # Contexts are made now, which may take longer than the runners' end: that disturbs no window.
        dying.callback(_close_in_line, contenders, bench)
    for contender in contenders:
        contender.listen()


def _close_in_line(contenders: Sequence[Contender], bench: Workbench) -> None:
    """Ends them, and until they are dead stands before whoever wants it quiet next."""
    with ExitStack() as line:
        with suppress(JobCancelled):
            line.enter_context(bench.quiet(lambda: not any(contender.alive for contender in contenders)))
        close(contenders)
