"""Tells which processes on a card this worker started, and which belong to other programs (docs/adr/0011)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from profiling.gpu.monitor import CardMonitor
from profiling.gpu.state_summary import CardState, Reading, card_state, processes
from sandbox.isolation import process_tree, uid
from sandbox.supervisor.process_register import ProcessRegister

INIT = 1
SURELY_ELSEWHERE = 2
"""A process that is absent here in this many lists runs in another PID namespace; one that ends is in a single list."""


class CardOwners:
    """The owners that one job has seen. Call `look` when the driver lists pids; the properties sum up."""

    def __init__(self, register: ProcessRegister, worker: int) -> None:
        """`worker` is the pid of the worker's main process, from which its other processes descend."""
        self._register = register
        self._worker = worker
        self._started_here: dict[int, bool] = {}
        self._absent: Counter[int] = Counter()

    def look(self, pids: Iterable[int]) -> None:
        """Find out which program started each process. The register or an earlier look knows those that just ended.

        A list without any live process of this worker has pids of another PID namespace, and is ignored.
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
        return {pid for pid, here in self._started_here.items() if here}

    @property
    def others(self) -> set[int]:
        """Processes of other programs. A process that ended before it was identified is in neither set."""
        elsewhere = {pid for pid, times in self._absent.items() if times >= SURELY_ELSEWHERE}
        return (elsewhere - self._started_here.keys()) | {pid for pid, here in self._started_here.items() if not here}

    def _descends(self, pid: int, status: process_tree.ProcessStatus | None) -> bool:
        # Walk upwards: a walk down from the worker would read every process of the machine while the device waits.
        visited: set[int] = set()
        while status is not None and pid not in visited:
            if pid == self._worker or self._register.has(pid, status.started):
                return True
            if status.parent <= INIT and uid.is_submissions(process_tree.user_of(pid)):
                return True  # Its parents ended first, as they do with their zygote.
            visited.add(pid)
            pid, status = status.parent, process_tree.status_of(status.parent)
        return False


class CardReadings:
    """Readings of the card around one job's windows, with the owners of the processes on it."""

    def __init__(self, card: CardMonitor, owners: CardOwners) -> None:
        self._card = card
        self._owners = owners
        self._readings: list[Reading] = []

    def take(self, *, thorough: bool = False) -> Reading:
        """Take a reading; a thorough one lists processes, whose owners are identified before any of them ends."""
        self._readings.append(self._card.sample(thorough=thorough))
        self._owners.look(processes(self._readings[-1:]))
        return self._readings[-1]

    def state(self) -> CardState:
        return card_state(self._readings, self._owners.started_here, self._owners.others)
