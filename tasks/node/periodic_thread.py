"""A periodic task of a worker's main process, on a thread of its own that survives outages of Redis."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from redis.exceptions import RedisError

LOG_AGAIN_S = 300.0
MOST_CHARS = 500

log = logging.getLogger(__name__)


other_failures: dict[str, str] = {}
"""Other work of this process that failed and will be retried, by name: the failure."""


def failing() -> list[str]:
    """A sentence for each task of this process whose last call failed, for the heartbeat."""
    failures = [*((loop.name, loop.failing) for loop in tuple(_running)), *other_failures.copy().items()]
    return sorted(f"the {name} failed and will be retried: {failure}" for name, failure in failures if failure)


class PeriodicThread:
    """Calls `function` at once and then every `every_s` seconds, between `start` and `stop`.

    A call that raises does not end the thread: `missed` is called, and the next call follows after the pause. The log
    has the first failure of a series, then one of another type, or one after LOG_AGAIN_S.
    """

    def __init__(
        self, name: str, function: Callable[[], None], every_s: float, missed: Callable[[], None] = lambda: None
    ) -> None:
        self.name = name
        self._function = function
        self._every_s = every_s
        self._missed = missed
        self._stopping = Event()
        self._logged: type[Exception] | None = None
        self._logged_at = 0.0
        self.failing: str | None = None
        """The exception of the last call; None if it returned."""
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        _running.add(self)
        self._thread.start()

    def stop(self) -> None:
        """Return after the current call; no further call follows."""
        self._stopping.set()
        self._thread.join()
        _running.discard(self)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._call()
            self._stopping.wait(self._every_s)

    def _call(self) -> None:
        """Call once. An exception must not end the thread, because nothing would restart it."""
        try:
            self._function()
        except Exception as error:
            self._note(error)
            try:
                self._missed()
            except Exception:
                log.exception("the %s cannot clean up after a failed call, retrying", self.name)
        else:
            if self.failing is not None:
                log.warning("the %s works again", self.name)
            self.failing = self._logged = None

    def _note(self, error: Exception) -> None:
        failure, kind = f"{type(error).__name__}: {error}"[:MOST_CHARS], type(error)
        if kind is not self._logged or time.monotonic() - self._logged_at > LOG_AGAIN_S:
            if isinstance(error, RedisError):
                log.warning("the %s cannot reach Redis, retrying: %s", self.name, error)
            else:
                log.error("the %s failed, retrying: %s", self.name, failure, exc_info=error)
            self._logged, self._logged_at = kind, time.monotonic()
        self.failing = failure


_running: set[PeriodicThread] = set()
