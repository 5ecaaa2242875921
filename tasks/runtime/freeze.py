"""CPU only: the referee freezes every other runner while it times one, so that none adds to another's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypedDict, Unpack

from domain.fault import FreezeViolation
from profiling.gpu.timing_device import Device
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import DeferredReadback, Window
from sandbox.supervisor.runner_process import RunnerProcess
from tasks.runtime.kernel_run import KernelRun


@contextmanager
def frozen_others(kernel_runs: Iterable[KernelRun], device: Device) -> Iterator[None]:
    """Freezes the runners of these kernel runs on the CPU. It does nothing on a GPU, which time-slices contexts.

    Raises Stopped if the referee cannot freeze a process, or if one ran in spite of it.
    """
    with frozen(() if device.is_cuda else kernel_runs):
        yield


@contextmanager
def frozen(kernel_runs: Iterable[KernelRun]) -> Iterator[None]:
    """Freezes the runners of these kernel runs on every device. Work that they queued on a GPU continues there."""
    with ExitStack() as stack:
        for kernel_run in kernel_runs:
            if kernel_run.session is not None and kernel_run.session.runner.alive:
                kernel_run.session.end_turn()  # A frozen runner could not give up its arena for the others.
                with kernel_run.attribute_faults():
                    kernel_run.session.runner.freeze()
                stack.callback(_thaw, kernel_run, kernel_run.session.runner)
        yield


def _thaw(kernel_run: KernelRun, runner: RunnerProcess) -> None:
    with kernel_run.attribute_faults():
        runner.check_frozen()
        runner.thaw()


class WindowOptions(TypedDict, total=False):
    """Keyword arguments of `profiling.window.timed_window.WindowSession.window`."""

    gated: bool
    with_events: bool
    deferred_readback: DeferredReadback | None
    meanwhile: Callable[[], None] | None


def undisturbed_window(
    kernel_run: KernelRun,
    kernel_runs: Iterable[KernelRun],
    slots: Slots,
    device: Device,
    **options: Unpack[WindowOptions],
) -> Window:
    """Runs one window of `kernel run` over the filled `slots`, while the runners of the other kernel runs are frozen.

    Raises what `WindowSession.window` raises, attributed to no kernel run, because that fault depends on these inputs.
    A process that ran although it was frozen is at fault on any inputs: then Stopped is raised, attributed to
    `kernel run`.
    """
    if kernel_run.window_session is None:
        raise ValueError(f"the {kernel_run.role} has no window session")
    with frozen_others((other for other in kernel_runs if other is not kernel_run), device):
        try:
            return kernel_run.window_session.window(slots, **options)
        except FreezeViolation:
            with kernel_run.attribute_faults():
                raise
