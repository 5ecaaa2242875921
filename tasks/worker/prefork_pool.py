"""Celery's prefork pool, with a check of its children every 0.1 s, which a full /dev/shm does not end.

The stock pool checks when a child's exit wakes it, which is too early to see the exit. Then it does not check for up to
5 s (celery#9588). The dead child's job would wait that long for its next attempt. The stock pool also gives up if a
child has died before its first check.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool

from tasks.node.periodic_thread import other_failures

MAINTAIN_S = 0.1
TRY_AGAIN_S = 2.0
"""Seconds between two tries without room: each collects garbage first, which at every check is a third of a core."""

START = "start of a pool child"
NO_ROOM = (
    "/dev/shm or /tmp is full or closed ({}), and a pool child needs a semaphore in one and a file in the other: "
    "remove what fills it (`df /dev/shm /tmp`), or enlarge it (a container's /dev/shm by shm_size)"
)

log = logging.getLogger(__name__)


class FastAsynPool(AsynPool):  # type: ignore[misc] # Celery has no type information.
    """The pool with its maintenance timer set to MAINTAIN_S; costs about 0.5 % of a core."""

    has_started = False
    next_start = 0.0

    @property
    def timers(self) -> dict[Callable[[], None], float]:
        return {self.maintain_pool: MAINTAIN_S}

    def did_start_ok(self) -> bool:
        """Always true: the pool replaces a child that was killed during its start, as at any other time.

        If children cannot start at all, the pool's own restart limit ends the worker.
        """
        return True

    def _create_worker_process(self, index: int) -> Any:
        """Without room in /dev/shm, a later check tries again. Celery would take the error for a lost broker."""
        if time.monotonic() < self.next_start:
            return None
        try:
            process = super()._create_worker_process(index)
        except OSError as error:
            if not self.has_started or error.errno != errno.ENOSPC:
                raise
            if START not in other_failures:
                log.error("the %s failed, retrying: %s", START, NO_ROOM.format(error))
            other_failures[START] = NO_ROOM.format(error)
            self.next_start = time.monotonic() + TRY_AGAIN_S
            return None
        other_failures.pop(START, None)
        return process


class FastTaskPool(TaskPool):  # type: ignore[misc] # Celery has no type information.
    Pool = FastAsynPool

    def on_start(self) -> None:
        """Exits if its children cannot have what they need to start."""
        try:
            super().on_start()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EACCES, errno.ENOENT):
                raise
            raise SystemExit(NO_ROOM.format(error)) from error
        self._pool.has_started = True
