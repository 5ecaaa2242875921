"""The line and the exit status of a compiler that was ended by a signal, and so could not write anything itself."""

from __future__ import annotations

import os

SIGNALLED = 128
"""A shell's status of a program that a signal has ended, less the signal's number."""


def signal_line(program: str, status: int) -> str:
    """A line for the log; empty where no signal ended the program. `status` is subprocess's: -N for signal N."""
    return f"{os.path.basename(program)} was killed by signal {-status}\n" if status < 0 else ""


def exit_status(status: int) -> int:
    """The status as a shell gives it: subprocess's -9 is 137."""
    return SIGNALLED - status if status < 0 else status
