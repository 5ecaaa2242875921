"""Kills C++ compilers from outside, as the OOM killer or an administrator would."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import psutil


@contextmanager
def compilers_killed(below: int, times: int = 1) -> Iterator[list[int]]:
    """Inside, the C++ compilers that descend from that process are killed from outside, so many of them."""
    ended, over = list[int](), Event()

    def kill() -> None:
        while not over.wait(0.01) and len(ended) < times:
            try:
                found = psutil.Process(below).children(recursive=True)
                compilers = [each for each in found if each.name() == "cc1plus"]
            except psutil.NoSuchProcess:
                continue
            for each in compilers:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
                    ended.append(each.pid)

    killer = Thread(target=kill)
    killer.start()
    try:
        yield ended
    finally:
        over.set()
        killer.join()
