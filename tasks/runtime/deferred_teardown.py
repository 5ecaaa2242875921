"""What a job leaves behind: runners that take a moment to die, and their folders. Its verdict does not wait for it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from profiling.gpu.timing_device import Device


class Dying:
    """Ends it in a thread of its own: however long the verdict takes on its way, nothing is held any longer for that.

    Nobody else may talk to the zygote meanwhile, which is asked to reap runners.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "dying")
        self._last: Future[None] | None = None

    def leave(self, left: ExitStack) -> None:
        """Begins to end what a job has left."""
        self._last = self._thread.submit(self._end, left)

    def wait(self) -> None:
        """Returns when nothing of it is there any more; raises what went wrong with that, once."""
        if self._last is None:
            return
        try:
            self._last.result()
        finally:
            # Whoever is told to end meanwhile waits once more before it does.
            self._last = None if self._last.done() else self._last

    def _end(self, left: ExitStack) -> None:
        with left:
            self._device.synchronize()  # Which gives this thread the context that arenas are unmapped in.
