"""Celery's consumer, which ends the worker when Redis refuses a write: here it waits, as for a Redis that is away."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown
from redis.exceptions import RedisError

from tasks.node.redis_client import WritesRefused, connect, require_writes

EVERY_S = 1.0

log = logging.getLogger(__name__)


class WaitingConsumer(Consumer):  # type: ignore[misc] # Celery has no type information.
    """The consumer for `worker_consumer`. Running jobs do not wait with it: their records have connections of their
    own."""

    def connect(self) -> Any:
        """Connect once Redis takes writes; also called after each error of a connection."""
        logged = False
        while (refusal := _refusal()) is not None:
            if not logged:
                log.warning("this worker takes no jobs until Redis takes writes: %s", refusal)
                logged = True
            maybe_shutdown()
            time.sleep(EVERY_S)
        return super().connect()


def _refusal() -> WritesRefused | None:
    """Why Redis takes no writes; None if it does, or is away: for that Celery has retries."""
    try:
        with connect() as redis:
            require_writes(redis)
    except WritesRefused as error:
        return error
    except RedisError:
        return None
    return None
