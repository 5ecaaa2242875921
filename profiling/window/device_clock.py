"""A window's clock behind the gate: marks on the referee's own stream, with no code of the host between gun and end.

A host that fires the gun, hears of the end and begins to copy is late by another 10 to 20 µs in each window; the device
by one (docs/measurements.md, docs/adr/0040).
"""

from __future__ import annotations

import logging
import os
import time
from functools import cache

import torch

from domain.fault import LOST_EXIT
from sandbox.protocol.cuda_driver import Gate, independent_stream

LET_GO_S = 30.0
"""What was queued is over by then, or this process waits for its device for ever, whatever it asks of it."""
POLL_S = 1e-3

log = logging.getLogger(__name__)


class DeviceClock:
    """Everything is queued ahead on the current stream, and waits there for the runner's where it has to.

    A runner can keep it waiting: whoever uses this looks whether it ends (`ends`), or kills the runner and lets go.
    """

    def __init__(self, gate: Gate) -> None:
        gate.reach()  # Now: it takes the driver longer than a short window.
        _other_stream()
        self._gate = gate
        self._begun, self._gun, self._end = (_mark() for _ in range(3))

    def begin(self) -> None:
        """From here on inputs are made ready."""
        self._begun.record()

    def start(self, shot: int) -> None:
        """Starts the clock, and fires the gun of that window."""
        self._gun.record()
        self.fire(shot)

    def fire(self, shot: int) -> None:
        """Lets the runner's stream go on that waits for that shot."""
        self._gate.queue_release(_stream().cuda_stream, shot)

    def wait(self, shot: int) -> None:
        """Whatever is queued from here on comes after the runner's report of that shot."""
        self._gate.queue_wait_for_done(_stream().cuda_stream, shot)

    def stop(self) -> None:
        """Stops the clock."""
        self._end.record()

    def ends(self, within_s: float) -> bool:
        """Waits for the clock to stop; False where it does not within that many seconds."""
        until = time.monotonic() + within_s
        while not _is_over(self._end):
            if time.monotonic() > until:
                return _is_over(self._end)  # Who was stopped since it asked asks once more.
        return True

    def read(self) -> tuple[float, float]:
        """Of a clock that has stopped: ms from the gun to there, and ms that making ready took before."""
        return float(self._gun.elapsed_time(self._end)), float(self._begun.elapsed_time(self._gun))

    def let_go(self, shot: int) -> None:
        """Has the stream wait for its runner, which was killed, no longer; returns when it has done all of its work.

        Ends this process where that does not help: it could not even say so, as it would wait for the device first.
        """
        until = time.monotonic() + LET_GO_S
        while not _stream().query():
            if time.monotonic() > until and not _stream().query():
                log.critical("the referee's stream waits for a runner that is gone; ending this process")
                os._exit(LOST_EXIT)
            self._gate.force_release(_other_stream(), shot)
            time.sleep(POLL_S)


@cache
def _other_stream() -> int:
    """One for this process, made before it is needed: no driver call is known not to wait once a stream is stuck."""
    return independent_stream()


def _is_over(mark: torch.cuda.Event) -> bool:
    return bool(mark.query())  # type: ignore[no-untyped-call]


def _mark() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _stream() -> torch.cuda.Stream:
    return torch.cuda.current_stream()
