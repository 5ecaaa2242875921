"""Ctrl-C, SIGTERM and a closed terminal, as one exception that is raised once."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(BaseException):
    """A signal asked for the end. No Exception, so that nothing on the way takes it for an error of its own."""


def stop_on_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    ignore_signals()
    raise Stop


def ignore_signals() -> None:
    """The way down is bounded: a second Ctrl-C must not cut it short and leave processes behind."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
