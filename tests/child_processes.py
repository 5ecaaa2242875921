"""Processes that tests have started, by the module or the words of their command lines."""

from __future__ import annotations

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """Its words; none where it has ended, as any process of a list may have by the time its turn comes."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # A zombie's too.
        return []


def running(module: str) -> list[psutil.Process]:
    """Children of this process whose command line names that module; not those that have ended."""
    return [child for child in psutil.Process().children() if module in command_line(child)]
