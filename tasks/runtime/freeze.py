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
def frozen_others(contenders: Iterable[KernelRun], device: Device) -> Iterator[None]:
    """Freezes the runners of these contenders on the CPU. It does nothing on a GPU, which time-slices contexts.

    Raises Stopped if the referee cannot freeze a process, or if one ran in spite of it.
    """
    with frozen(() if device.is_cuda else contenders):
        yield


@contextmanager
def frozen(contenders: Iterable[KernelRun]) -> Iterator[None]:
    """Freezes the runners of these contenders on every device. Work that they queued on a GPU continues there."""
    with ExitStack() as stack:
        for contender in contenders:
            if contender.session is not None and contender.session.runner.alive:
                with contender.attribute_faults():
                    contender.session.runner.freeze()
                stack.callback(_thaw, contender, contender.session.runner)
        yield


def _thaw(contender: KernelRun, runner: RunnerProcess) -> None:
    with contender.attribute_faults():
        runner.check_frozen()
        runner.thaw()


class WindowOptions(TypedDict, total=False):
    """Keyword arguments of `profiling.window.timed_window.WindowSession.window`."""

    gated: bool
    with_events: bool
    deferred_readback: DeferredReadback | None
    meanwhile: Callable[[], None] | None


def undisturbed_window(
    contender: KernelRun,
    contenders: Iterable[KernelRun],
    slots: Slots,
    device: Device,
    **options: Unpack[WindowOptions],
) -> Window:
    """Runs one window of `contender` over the filled `slots`, while the runners of the other contenders are frozen.

    Raises what `WindowSession.window` raises, attributed to no contender, because that fault depends on these inputs.
    A process that ran although it was frozen is at fault on any inputs: then Stopped is raised, attributed to
    `contender`.
    """
    if contender.window_session is None:
        raise ValueError(f"the {contender.role} has no window session")
    with frozen_others((other for other in contenders if other is not contender), device):
        try:
            return contender.window_session.window(slots, **options)
        except FreezeViolation:
            with contender.attribute_faults():
                raise
