"""On the host: whoever has no window just now does not run, so that nothing of his is in another's time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from profiling.device import Device
from tasks.contender import Contender


@contextmanager
def at_rest(contenders: Iterable[Contender], device: Device) -> Iterator[None]:
    """Inside, none of their processes runs. On a GPU, where contexts take turns, nothing is done.

    Raises Stopped for processes that cannot be stopped.
    """
    stopped = []
    try:
        for contender in () if device.is_cuda else contenders:
            if contender.session is not None and contender.session.runner.alive:
                with contender.answerable():
                    contender.session.runner.freeze()
                stopped.append(contender.session.runner)
        yield
    finally:
        for runner in stopped:
            runner.thaw()
