"""Ends a job's runners and removes their folders in the background, so that the verdict need not wait for that."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from profiling.gpu.timing_device import Device


class DeferredTeardown:
    """Runs the teardown of one job in a thread, so that it holds no resource longer while the verdict is delivered.

    Nothing else may talk to the zygote until `join` returns: the teardown asks the zygote to reap runners.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "teardown")
        self._last: Future[None] | None = None

    def submit(self, resources: ExitStack) -> None:
        """Begins to close what a job has opened; returns at once."""
        self._last = self._thread.submit(self._end, resources)

    def join(self) -> None:
        """Waits until the last teardown is over; raises its exception, once."""
        if self._last is None:
            return
        try:
            self._last.result()
        finally:
            # A signal may interrupt this wait before the teardown is over. Then the next call has to wait again.
            self._last = None if self._last.done() else self._last

    def _end(self, resources: ExitStack) -> None:
        with resources:
            self._device.synchronize()  # Makes the CUDA context current in this thread: unmapping an arena needs it.
