"""Ctrl-C, SIGTERM and a closed terminal, as one exception that is raised once for each `stop_on_signals`."""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(BaseException):
    """A signal asked for the end. No Exception, so that nothing on the way takes it for an error of its own."""


def stop_on_signals(deaf_s: float = 0.0) -> None:
    """The next signal raises Stop; one within the first `deaf_s` seconds does nothing."""
    heard_from = time.monotonic() + deaf_s

    def stop(number: int, frame: FrameType | None) -> None:
        if time.monotonic() < heard_from:
            return
        ignore_signals()
        raise Stop

    for number in SIGNALS:
        signal.signal(number, stop)


def ignore_signals() -> None:
    """The way down is bounded: a second Ctrl-C must not cut it short and leave processes behind."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
