"""How many requests one server process holds at once, and how many of them may be clients that only wait."""

from __future__ import annotations

PROCESSES = 4
"""The threads of one take turns: of two on two cores one was full at 200 submissions a second (docs/measurements.md).
A large body being checked delays the answers of one of them only."""

THREADS = 320
"""A thread costs about 100 KiB, and a waiting client holds one. One that finds no place costs more than one that waits:
it comes back every few seconds, together with the others that found none."""

WAITERS = THREADS * 3 // 4
"""The rest stays free for /health and for submissions, whoever waits."""
