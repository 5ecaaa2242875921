"""Turns Ctrl-C, SIGTERM and a closed terminal into one exception, raised once for each `stop_on_signals`."""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(BaseException):
    """A signal asked to stop. A BaseException, so that no handler on the way takes it for an error."""


def stop_on_signals(ignore_s: float = 0.0) -> None:
    """Has the next signal raise Stop, but ignores signals within the first `ignore_s` seconds."""
    ignore_until = time.monotonic() + ignore_s

    def stop(number: int, frame: FrameType | None) -> None:
        if time.monotonic() < ignore_until:
            return
        ignore_signals()
        raise Stop

    for number in SIGNALS:
        signal.signal(number, stop)


def ignore_signals() -> None:
    """Ignores further signals: stopping is bounded in time, and a second Ctrl-C would leave processes behind."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
