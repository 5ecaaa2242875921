"""How a job's runners end: all of them at once, and where that disturbs nobody, once the job's report is made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from domain.fault import JobCancelled
from tasks.contender import Contender
from tasks.workbench import Workbench


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
    """Of stopped runners: they are gone when this returns, or else when `dying` is closed. Others' windows wait for it.

    What they have printed is known either way.
    """
    if bench.device.has_room:
        with suppress(JobCancelled):  # Where somebody has it quiet now: to wait takes longer than the runners' end.
            dying.enter_context(bench.quiet(lambda: True))
            dying.callback(close, contenders)
            for contender in contenders:
                contender.listen()
            return
    close(contenders)
