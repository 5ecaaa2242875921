"""Waiting for jobs to change: one listener thread for all the requests that a process holds."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Event, Lock, Thread

from redis import Redis
from redis.exceptions import RedisError

from tasks.jobs.job_lua import CHANNEL, ENDED
from tasks.jobs.job_view import text

RETRY_S = 0.2
LOOK_S = 1.0
"""How long the listener reads at a time before it looks whether it should stop, or the process is being stopped."""

UNLIMITED = 1 << 20

log = logging.getLogger(__name__)


class JobHub:
    """Wakes waiters when a job moves. The listener starts with the first waiter, so a hub may be made before a fork.

    A waiter may also be woken for nothing (after a reconnect everybody is: changes may have been missed), so it looks
    at the record again, always.
    """

    def __init__(self, redis: Redis, capacity: int = UNLIMITED) -> None:
        """At most `capacity` callers hold a place of `try_enter` at once."""
        self._redis = redis
        self._places = BoundedSemaphore(capacity)
        self._lock = Lock()
        self._waiting: defaultdict[str, set[Event]] = defaultdict(set)
        self._awaiting_end: defaultdict[str, set[Event]] = defaultdict(set)
        self._listener: Thread | None = None
        self._closing = Event()
        self._listening = Event()
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the process is being stopped. The listener asks, so that hundreds need not."""

    def try_enter(self) -> bool:
        """Take a waiter's place if one is free; then `leave` gives it back."""
        return self._places.acquire(blocking=False)

    def leave(self) -> None:
        self._places.release()

    @contextmanager
    def watch(self, job_id: str, *, end: bool = False) -> Iterator[Event]:
        """An event that is set by every change of the job from now on: look at the record inside, then wait on it.

        With `end` only when the job has ended: each look of hundreds who wait for that costs milliseconds.
        """
        self._ensure_listener()
        waiting, change = self._awaiting_end if end else self._waiting, Event()
        with self._lock:
            waiting[job_id].add(change)
        try:
            yield change
        finally:
            with self._lock:
                waiting[job_id].discard(change)
                if not waiting[job_id]:
                    del waiting[job_id]

    def close(self) -> None:
        """Stop listening and wake everybody."""
        self._closing.set()
        if self._listener is not None:
            self._listener.join()
        self._wake_all()

    def _ensure_listener(self) -> None:
        with self._lock:
            # A thread does not survive a fork: in the child it is there but not alive.
            if self._listener is None or not self._listener.is_alive():
                self._listening.clear()
                self._listener = Thread(target=self._listen, name="job-hub", daemon=True)
                self._listener.start()
        self._listening.wait(LOOK_S)

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except Exception as error:
                # A thread that ended here would leave everybody who waits until the next one comes.
                known = isinstance(error, RedisError | OSError)
                log.warning("job changes are not heard, trying on: %s", error, exc_info=None if known else error)
                self._closing.wait(RETRY_S)
            self._wake_all_at_a_stop()

    def _follow(self) -> None:
        with self._redis.pubsub(ignore_subscribe_messages=False) as changes:  # type: ignore[no-untyped-call]
            changes.subscribe(CHANNEL, ENDED)
            while not self._closing.is_set():
                message = changes.get_message(timeout=LOOK_S)
                self._wake_all_at_a_stop()
                if message is None:
                    continue
                if message["type"] == "subscribe" and message["data"] == len((CHANNEL, ENDED)):
                    # Woken first: who waits from here on has missed nothing, and is not to be woken for it.
                    self._wake_all()
                    self._listening.set()
                elif message["type"] == "message":
                    ended = text(message["channel"]) == ENDED
                    self._wake(self._awaiting_end if ended else self._waiting, text(message["data"]))

    def _wake(self, waiting: dict[str, set[Event]], job_id: str) -> None:
        with self._lock:
            for change in waiting.get(job_id, ()):
                change.set()

    def _wake_all_at_a_stop(self) -> None:
        if self.stopping():
            self._wake_all()

    def _wake_all(self) -> None:
        with self._lock:
            for changes in [*self._waiting.values(), *self._awaiting_end.values()]:
                for change in changes:
                    change.set()
