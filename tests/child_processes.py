"""The processes that this test process has started, by the module that they run."""

from __future__ import annotations

import psutil


def running(module: str) -> list[psutil.Process]:
    """Children whose command line names that module; not those that have ended."""
    found = []
    for child in psutil.Process().children():
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.Error:  # It has ended.
            continue
    return found
