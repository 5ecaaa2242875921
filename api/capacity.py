"""How many requests one server process holds at once, and how many of them may be clients that only wait."""

from __future__ import annotations

PROCESSES = 2
"""Two, so that a large body being checked in one does not delay the answers of the other."""

THREADS = 512
"""A thread costs about 100 KiB, and a waiting client holds one; 200 waiting clients cost 2 % of a core. One that finds
no place costs more: it comes back every few seconds, together with the others that found none."""

WAITERS = THREADS * 3 // 4
"""The rest stays free for /health and for submissions, whoever waits."""
