"""Whoever is not asked just now does not run: on the host, so that nothing of his is in another's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypedDict, Unpack

from domain.fault import FreezeViolation
from profiling.gpu.timing_device import Device
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import HeldBack, Window
from sandbox.supervisor.runner_process import RunnerProcess
from tasks.runtime.kernel_run import Contender


@contextmanager
def at_rest(contenders: Iterable[Contender], device: Device) -> Iterator[None]:
    """Inside, none of their processes runs. On a GPU, where contexts take turns, nothing is done.

    Raises Stopped for processes that cannot be stopped, or have run.
    """
    with stopped(() if device.is_cuda else contenders):
        yield


@contextmanager
def stopped(contenders: Iterable[Contender]) -> Iterator[None]:
    """The same on every device: what they have given a GPU to do goes on there."""
    with ExitStack() as stack:
        for contender in contenders:
            if contender.session is not None and contender.session.runner.alive:
                with contender.answerable():
                    contender.session.runner.freeze()
                stack.callback(_let_go_on, contender, contender.session.runner)
        yield


def _let_go_on(contender: Contender, runner: RunnerProcess) -> None:
    with contender.answerable():
        runner.check_frozen()
        runner.thaw()


class How(TypedDict, total=False):
    """How a window is taken (`profiling.window.timed_window.Range.window`)."""

    gated: bool
    marked: bool
    held_back: HeldBack | None
    meanwhile: Callable[[], None] | None


def undisturbed_window(
    contender: Contender, contenders: Iterable[Contender], slots: Slots, device: Device, **how: Unpack[How]
) -> Window:
    """One window of that one of the contenders over what its slots were filled with, while the others are at rest.

    Raises what `Range.window` does, for which nobody is made answerable, and Stopped, as for one that did not stand
    still: that says nothing about these inputs.
    """
    if contender.range is None:
        raise ValueError(f"the {contender.role} has no range")
    with at_rest((other for other in contenders if other is not contender), device):
        try:
            return contender.range.window(slots, **how)
        except FreezeViolation:
            with contender.answerable():
                raise
