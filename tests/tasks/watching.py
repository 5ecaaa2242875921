"""A submission's thread that says for how long its process was stopped."""

from __future__ import annotations

import re

WATCHING = """
import os, threading, time
def watch():
    last = time.monotonic()
    while True:
        time.sleep(0.01)
        now = time.monotonic()
        if now - last > 0.25:
            print(f"stood still for {now - last} s", flush=True)
        last = now
if 'CUDA_VISIBLE_DEVICES' not in os.environ:
    threading.Thread(target=watch, daemon=True).start()
"""


def stood_still_s(printed: str) -> float:
    """Seconds in all: two stops are one to a thread that has not run in between."""
    return sum(float(seconds) for seconds in re.findall(r"stood still for (\S+) s", printed))
