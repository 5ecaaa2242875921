"""Waiting for changes of jobs: one listener thread serves all requests of a process."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Event, Lock, Thread

from redis import Redis
from redis.exceptions import RedisError

from tasks.node.redis_client import text

CHANNEL, ENDED = "jobs:changed", "jobs:ended"
"""Channels on which transitions publish job ids: at every change, and once when the job ends."""

RETRY_S = 0.2
POLL_S = 1.0
"""Maximum time of one read of the listener, in s; then it checks whether it or the process should stop."""

UNLIMITED = 1 << 20
LISTENER = "job-hub"
"""Name of the listener's thread."""

log = logging.getLogger(__name__)


class JobNotifier:
    """Wakes waiters when a job changes. The first waiter starts the listener, so a hub may be created before a fork.

    Waiters must read the record again when they wake, because wake-ups can be spurious: a reconnect wakes all of them,
    as changes may have been missed.
    """

    def __init__(self, redis: Redis, capacity: int = UNLIMITED) -> None:
        """`capacity` is the maximum number of concurrent waiters that `try_enter` admits."""
        self._redis = redis
        self._slots = BoundedSemaphore(capacity)
        self._lock = Lock()
        self._waiting: defaultdict[str, set[Event]] = defaultdict(set)
        self._awaiting_end: defaultdict[str, set[Event]] = defaultdict(set)
        self._listener: Thread | None = None
        self._closing = Event()
        self._listening = Event()
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the process is being stopped. Only the listener polls it, on behalf of hundreds of waiters."""

    def try_enter(self) -> bool:
        """Reserve a waiter's slot if one is free; `leave` releases it."""
        return self._slots.acquire(blocking=False)

    def leave(self) -> None:
        self._slots.release()

    @contextmanager
    def watch(self, job_id: str, *, end: bool = False) -> Iterator[Event]:
        """An event that every later change of the job sets. Read the record inside the block, then wait for the event.

        With `end`, only the end of the job sets it. Hundreds wait for that, and each needless read costs milliseconds.
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

    @property
    def watched(self) -> frozenset[str]:
        """The jobs that are waited for now."""
        with self._lock:
            return frozenset(self._waiting) | frozenset(self._awaiting_end)

    def close(self) -> None:
        """Stop the listener and wake all waiters."""
        self._closing.set()
        if self._listener is not None:
            self._listener.join()
        self._wake_all()

    def _ensure_listener(self) -> None:
        with self._lock:
            # A thread does not survive a fork: in the child the object exists, but the thread is not alive.
            if self._listener is None or not self._listener.is_alive():
                self._listening.clear()
                self._listener = Thread(target=self._listen, name=LISTENER, daemon=True)
                self._listener.start()
        self._listening.wait(POLL_S)

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except Exception as error:
                # If this thread ended here, no waiter would wake until the next one arrives.
                expected = isinstance(error, RedisError | OSError)
                log.warning("job changes are not received, retrying: %s", error, exc_info=None if expected else error)
                self._closing.wait(RETRY_S)
            self._wake_all_at_a_stop()

    def _follow(self) -> None:
        with self._redis.pubsub(ignore_subscribe_messages=False) as changes:  # type: ignore[no-untyped-call]
            changes.subscribe(CHANNEL, ENDED)
            while not self._closing.is_set():
                message = changes.get_message(timeout=POLL_S)
                self._wake_all_at_a_stop()
                if message is None:
                    continue
                if message["type"] == "subscribe" and message["data"] == len((CHANNEL, ENDED)):
                    # Wake all before the listener counts as ready: a later waiter has missed nothing.
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
