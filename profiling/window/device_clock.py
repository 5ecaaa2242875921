"""The clock of gated windows: CUDA events on the referee's stream, with no host code between release and end.

A host clock, with the host releasing the calls and starting the copy, varies by 10 to 20 µs from window to window. The
device's clock varies by 1 µs (docs/measurements.md, docs/adr/0017).
"""

from __future__ import annotations

import logging
import os
import time
from functools import cache

import torch

from domain.fault import LOST_EXIT
from sandbox.protocol.cuda_driver import Gate, independent_stream

FORCE_RELEASE_S = 30.0
"""Maximum time for the stream to finish after its runner was killed, in s. Later, every call of this process would wait
for its device for ever."""
POLL_S = 1e-3

log = logging.getLogger(__name__)


class DeviceClock:
    """Queues one window's operations on the current stream, which waits for the runner's stream where it has to.

    A runner can keep the stream waiting. The caller therefore checks whether the window ends (`ends`); if it does not,
    the caller kills the runner and calls `force_release`.
    """

    def __init__(self, gate: Gate) -> None:
        gate.reach()  # Before the first window, because it takes the driver longer than a short one.
        _rescue_stream()
        self._gate = gate
        self._setup_begin, self._release, self._end = (_event() for _ in range(3))

    def begin_setup(self) -> None:
        """Marks the begin of the window's setup."""
        self._setup_begin.record()

    def start(self, sequence_number: int) -> None:
        """Starts the clock and releases the calls of that sequence number."""
        self._release.record()
        self.release(sequence_number)

    def release(self, sequence_number: int) -> None:
        """Releases the runner's stream, which waits at the gate for that sequence number."""
        self._gate.queue_release(_stream().cuda_stream, sequence_number)

    def wait_until_done(self, sequence_number: int) -> None:
        """Makes later work on this stream wait until the runner's stream signals that it is done."""
        self._gate.queue_wait_for_done(_stream().cuda_stream, sequence_number)

    def stop(self) -> None:
        """Stops the clock."""
        self._end.record()

    def ends(self, within_s: float) -> bool:
        """Waits up to `within_s` seconds for the clock to stop; returns whether it has."""
        until = time.monotonic() + within_s
        while not _is_over(self._end):
            if time.monotonic() > until:
                return _is_over(self._end)  # Once more: this process may have been suspended between the two checks.
        return True

    def read(self) -> tuple[float, float]:
        """For a stopped clock: the time from release to end and the setup time before the release, in ms."""
        return float(self._release.elapsed_time(self._end)), float(self._setup_begin.elapsed_time(self._release))

    def force_release(self, sequence_number: int) -> None:
        """Frees the stream from waiting for its runner, which was killed; returns when all of its work is done.

        It ends this process if that does not help, because every later call would wait for the device for ever.
        """
        until = time.monotonic() + FORCE_RELEASE_S
        while not _stream().query():
            if time.monotonic() > until and not _stream().query():
                log.critical("the referee's stream waits for a runner that is gone; ending this process")
                os._exit(LOST_EXIT)
            self._gate.force_release(_rescue_stream(), sequence_number)
            time.sleep(POLL_S)


@cache
def _rescue_stream() -> int:
    """A second stream of this process, made ahead: once a stream is stuck, any driver call may wait for it."""
    return independent_stream()


def _is_over(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _stream() -> torch.cuda.Stream:
    return torch.cuda.current_stream()
