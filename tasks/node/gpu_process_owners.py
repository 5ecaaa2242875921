"""Tells the processes on a card that this worker has started from those of other programs (docs/adr/0046)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sandbox.isolation import process_tree, uid
from sandbox.supervisor.process_register import ProcessRegister

INIT = 1
SURELY_ELSEWHERE = 2
"""In so many lists without a process of that number here: it runs in another PID namespace. One that ends is in one."""


class CardOwners:
    """One job's view. `look` takes the pids that the driver lists, when it lists them; the properties sum up."""

    def __init__(self, register: ProcessRegister, worker: int) -> None:
        """`worker` is the pid of the worker's main process, from which its other processes descend."""
        self._register = register
        self._worker = worker
        self._started_here: dict[int, bool] = {}
        self._absent: Counter[int] = Counter()

    def look(self, pids: Iterable[int]) -> None:
        """Finds out who started each. A process that has just ended is known by the register or an earlier look.

        A list without any living process of this worker has the numbers of another PID namespace, and is not used.
        """
        statuses = {pid: process_tree.status_of(pid) for pid in pids}
        living = {pid: self._descends(pid, status) for pid, status in statuses.items() if status is not None}
        if not any(living.values()):
            return
        self._started_here |= living
        for pid in statuses.keys() - living.keys():
            if self._register.has(pid, None):
                self._started_here[pid] = True
            elif pid not in self._started_here:
                self._absent[pid] += 1

    @property
    def started_here(self) -> set[int]:
        """Processes of this worker."""
        return {pid for pid, here in self._started_here.items() if here}

    @property
    def others(self) -> set[int]:
        """Processes of other programs. A process that ended before it could be looked at is in neither set."""
        elsewhere = {pid for pid, times in self._absent.items() if times >= SURELY_ELSEWHERE}
        return (elsewhere - self._started_here.keys()) | {pid for pid, here in self._started_here.items() if not here}

    def _descends(self, pid: int, status: process_tree.ProcessStatus | None) -> bool:
        # Upwards: a walk down from the worker reads of every process of the machine, and the device waits.
        visited: set[int] = set()
        while status is not None and pid not in visited:
            if pid == self._worker or self._register.has(pid, status.started):
                return True
            if status.parent <= INIT and uid.is_submissions(process_tree.user_of(pid)):
                return True  # Its parents ended before it, as they do with their zygote.
            visited.add(pid)
            pid, status = status.parent, process_tree.status_of(status.parent)
        return False
