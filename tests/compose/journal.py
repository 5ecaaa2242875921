"""The lines of a trial's transcript, each with the seconds since its process began."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

SECRET = re.compile(r"kevk_\w+|[0-9a-f]{24,}")
_BEGAN = time.monotonic()


def say(line: str) -> None:
    """Prints the line; keys and passwords are masked."""
    print(f"{time.monotonic() - _BEGAN:6.0f} s  {SECRET.sub('…', line)}", flush=True)


def timed(title: str, step: Callable[[], object]) -> None:
    """Runs the step and prints its seconds."""
    began = time.monotonic()
    step()
    say(f"{title}: {time.monotonic() - began:.0f} s")
