"""Puts right what a lost message or a dead worker left behind, from a thread of every worker's main process.

Of all reconcilers one is at work at a time, the one with the lock in Redis. Being wrong is harmless: a message too many
claims nothing, and an owner that was given up while it lives is fenced off. Only being wrong all the time is not, so
what is lost must look lost in two looks, SURE_S apart.
"""

from __future__ import annotations

import logging
import time
from uuid import uuid4

from redis import Redis
from redis.exceptions import RedisError

from tasks.evaluation.celery_task import requeue_or_end
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import publish_more
from tasks.node.log_config import about
from tasks.node.periodic_thread import Loop

EVERY_S = 2.0
SURE_S = 6.0
"""Longer than owners need to be heard again after Redis was away, when all their keys have expired."""

AT_ONCE = 500
"""Messages that are sent, and jobs that are moved, in one look."""

LOCK = "reconciler:lock"
LOCK_TTL_S = 8
CLEANUP_S = 60.0

Lost = tuple[str, int | None]
"""A job and the attempt whose owner is gone; a line and 0: messages; a line and None: all of its jobs."""

_KEEP_LOCK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) and 1 or 0
"""
_DROP_LOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

log = logging.getLogger(__name__)


class Reconciler:
    """One process's reconciler; `look` does one pass, `start` makes it periodic."""

    def __init__(self, redis: Redis, records: JobStore, ttl_s: int) -> None:
        self._redis = redis
        self._records = records
        self._ttl_s = ttl_s
        self._token = uuid4().hex
        self._keep_lock = redis.register_script(_KEEP_LOCK)
        self._drop_lock = redis.register_script(_DROP_LOCK)
        self._suspected: dict[Lost, tuple[float, int]] = {}
        self._cleaned_at = 0.0
        # Where Redis was away, owners were not heard meanwhile, so what was suspected is not to be trusted.
        self._loop = Loop("reconciler", self.look, EVERY_S, missed=lambda: self._suspected.clear())

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()
        try:
            self._drop_lock(keys=[LOCK], args=[self._token])
        except RedisError as error:
            log.warning("another reconciler has to wait %d s for the lock: %s", LOCK_TTL_S, error)

    def look(self) -> None:
        """One pass, if this process has the lock."""
        if not self._keep_lock(keys=[LOCK], args=[self._token, LOCK_TTL_S]):
            self._suspected.clear()
            return
        self._records.expire_overdue()
        lost: dict[Lost, int] = dict.fromkeys(self._records.abandoned(), 1)
        taking = {worker.name for worker in workers(self._redis) if worker.quarantined is None}
        for line in self._records.queue.all():
            if line.worker is not None and line.worker not in taking:
                lost[line.name, None] = line.jobs
            elif line.jobs > line.messages:
                lost[line.name, 0] = line.jobs - line.messages
        for (name, attempt), count in self._suspect(lost):
            if attempt is None:
                self._move_all(name)
            elif attempt:
                with about(job_id=name, attempt=attempt):
                    log.warning("job %s: the owner of attempt %d is gone", name, attempt)
                    requeue_or_end(self._records, name, attempt, "its worker died or lost its connection")
            else:
                self._send_more(name, count)
        if time.monotonic() - self._cleaned_at > CLEANUP_S:
            self._records.cleanup(self._records.now() - self._ttl_s)
            self._cleaned_at = time.monotonic()

    def _suspect(self, lost: dict[Lost, int]) -> list[tuple[Lost, int]]:
        """What has looked lost for SURE_S, and how many at least all the while; it is suspected no more."""
        now = time.monotonic()
        before = self._suspected
        self._suspected = {
            each: (before[each][0], min(before[each][1], count)) if each in before else (now, count)
            for each, count in lost.items()
        }
        sure = [(each, count) for each, (since, count) in self._suspected.items() if now - since >= SURE_S]
        for each, _ in sure:
            del self._suspected[each]
        return sure

    def _send_more(self, line: str, count: int) -> None:
        """A line whose messages are fewer than its jobs, and not because somebody has just received them."""
        log.warning("%s: %d messages were lost, sending others", line, count)
        for _ in range(min(count, AT_ONCE)):
            if not publish_more(line):
                return

    def _move_all(self, line: str) -> None:
        """The jobs of a line whose worker is gone, or takes none."""
        for job_id in self._records.queue.jobs(line, AT_ONCE):
            other = self._records.queue.move(job_id)
            log.warning("job %s: nobody serves %s, so that it is in %s now", job_id, line, other)
            if other is not None:
                publish_more(other)
        self._redis.delete(line)  # Its messages; what is in it again, should he be back, gets others.
