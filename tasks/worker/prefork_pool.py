"""Celery's prefork pool, with a check of its children every 0.1 s.

The stock pool checks when a child's exit wakes it, which is too early to see the exit. Then it does not check for up to
5 s (celery#9588). The dead child's job would wait that long for its next attempt. The stock pool also gives up if a
child has died before its first check.
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
        """Always true: the pool replaces a child that was killed during its start, as at any other time.

        If children cannot start at all, the pool's own restart limit ends the worker.
        """
        return True


class FastTaskPool(TaskPool):  # type: ignore[misc] # Celery has no type information.
    Pool = FastAsynPool
