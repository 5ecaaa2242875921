"""Readings of the card around one job's windows, with the owners of the processes on it."""

from __future__ import annotations

from profiling.gpu.monitor import CardMonitor
from profiling.gpu.state_summary import CardState, Reading, card_state, processes
from tasks.node.gpu_process_owners import CardOwners


class CardReadings:
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
