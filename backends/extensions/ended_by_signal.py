"""The log line and the exit status of a compiler that a signal killed, since it could not write anything itself."""

from __future__ import annotations

import os

SIGNALLED = 128
"""The exit status that a shell reports for a program killed by a signal, minus the signal's number."""


def signal_line(program: str, status: int) -> str:
    """A line for the log; empty where no signal killed the program. `status` is subprocess's: -N for signal N."""
    return f"{os.path.basename(program)} was killed by signal {-status}\n" if status < 0 else ""


def exit_status(status: int) -> int:
    """The status as a shell reports it: subprocess's -9 is 137."""
    return SIGNALLED - status if status < 0 else status
