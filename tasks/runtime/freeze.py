"""Stops a candidate while the referee needs its reference, so that the candidate cannot make the reference late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.runtime.kernel_run import KernelRun


@contextmanager
def frozen(kernel_run: KernelRun | None) -> Iterator[None]:
    """Stops the processes of that kernel run, if there is one. Work that they queued on a GPU continues there."""
    if kernel_run is None or kernel_run.session is None or not kernel_run.session.runner.alive:
        yield
        return
    runner = kernel_run.session.runner
    kernel_run.session.give_up_arena()  # A stopped runner could not give up its arena for the others.
    with kernel_run.attribute_faults():
        runner.freeze()
    try:
        yield
    finally:
        runner.thaw()
