"""A window's clock behind the gate: marks on the referee's own stream, with no code of the host between gun and end.

A host that fires the gun, hears of the end and begins to copy is late by another 10 to 20 µs in each window; the device
by one (docs/measurements.md, docs/adr/0040).
"""

from __future__ import annotations

import torch

from sandbox.cuda import Gate


class DeviceClock:
    """Everything is queued ahead on the current stream, and waits there for the runner's where it has to.

    Who has it wait sees to it that the gate lets go (`Gate.let_go`), whatever the runner does.
    """

    def __init__(self, gate: Gate) -> None:
        gate.reach()  # Now: it takes the driver longer than a short window.
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
        self._gate.fire_behind(_stream(), shot)

    def wait(self, shot: int) -> None:
        """Whatever is queued from here on comes after the runner's report of that shot."""
        self._gate.await_report(_stream(), shot)

    def stop(self) -> None:
        """Stops the clock."""
        self._end.record()

    def read(self) -> tuple[float, float]:
        """Waits for the end: ms from the gun to there, and ms that making ready took before."""
        self._end.synchronize()
        return float(self._gun.elapsed_time(self._end)), float(self._begun.elapsed_time(self._gun))


def _mark() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)
