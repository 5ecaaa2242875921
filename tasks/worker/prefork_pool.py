"""Celery's prefork pool, looking after its children every 0.1 s.

The stock pool looks when a child's exit wakes it, too early to see it, and then not for up to 5 s (celery#9588): a dead
child's job would wait that long for its next attempt. It gives up where one has died by the time it looks first.
"""

from __future__ import annotations

from collections.abc import Callable

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool

MAINTAIN_S = 0.1


class FastAsynPool(AsynPool):  # type: ignore[misc] # Celery has no type information.
    """The pool with its maintenance timer set to MAINTAIN_S; costs about 0.5 % of a core."""

    @property
    def timers(self) -> dict[Callable[[], None], float]:
        return {self.maintain_pool: MAINTAIN_S}

    def did_start_ok(self) -> bool:
        """A child that was killed as it started is replaced, as at any other time: no reason to give up the worker.

        One that cannot start at all ends it by the pool's own limit of restarts.
        """
        return True


class FastTaskPool(TaskPool):  # type: ignore[misc] # Celery has no type information.
    """The prefork pool for `worker_pool`."""

    Pool = FastAsynPool
