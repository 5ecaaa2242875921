"""Something that a worker's main process does every few seconds, on a thread of its own, while Redis comes and goes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from redis.exceptions import RedisError

log = logging.getLogger(__name__)


class Loop:
    """Calls `turn` at once and every `every_s` seconds from then on, between `start` and `stop`.

    A turn that Redis fails is missed and no more: `missed` is called, and the first one of a row is logged.
    """

    def __init__(
        self, name: str, turn: Callable[[], None], every_s: float, missed: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._turn = turn
        self._every_s = every_s
        self._missed = missed
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when no turn runs and none will."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        well = True
        while not self._stopping.is_set():
            try:
                self._turn()
                well = True
            except RedisError as error:
                if well:
                    log.warning("the %s cannot reach Redis, trying on: %s", self._name, error)
                well = False
                self._missed()
            self._stopping.wait(self._every_s)
