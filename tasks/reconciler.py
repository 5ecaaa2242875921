"""Puts right what a lost message or a dead worker left behind, from a thread of every worker's main process.

Of all reconcilers one is at work at a time, the one with the lock in Redis. Being wrong is harmless: a message too many
claims nothing, and an owner that was given up while it lives is fenced off. Only being wrong all the time is not, so a
job must look lost in two looks, SURE_S apart.
"""

from __future__ import annotations

import json
import logging
import time
from uuid import uuid4

from redis import Redis
from redis.exceptions import RedisError

from tasks.app import app
from tasks.evaluation import try_again
from tasks.heartbeat import workers
from tasks.log_lines import about
from tasks.loop import Loop
from tasks.records import JobRecords
from tasks.submission import PUBLISHED_AT, own_queue, publish_again

EVERY_S = 2.0
SURE_S = 6.0
"""Longer than owners need to be heard again after Redis was away, when all their keys have expired."""

MARGIN_S = 10.0
"""A message may be that much younger than its job's place in the queue: publishing takes a while when it is retried."""

LOCK = "reconciler:lock"
LOCK_TTL_S = 8
CLEANUP_S = 60.0

_KEEP_LOCK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) and 1 or 0
"""
_DROP_LOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

log = logging.getLogger(__name__)


class Reconciler:
    """One process's reconciler; `look` does one pass, `start` makes it periodic."""

    def __init__(self, redis: Redis, records: JobRecords, ttl_s: int) -> None:
        self._redis = redis
        self._records = records
        self._ttl_s = ttl_s
        self._token = uuid4().hex
        self._keep_lock = redis.register_script(_KEEP_LOCK)
        self._drop_lock = redis.register_script(_DROP_LOCK)
        self._suspected_since: dict[tuple[str, int], float] = {}
        self._cleaned_at = 0.0
        # Where Redis was away, owners were not heard meanwhile, so what was suspected is not to be trusted.
        self._loop = Loop("reconciler", self.look, EVERY_S, missed=lambda: self._suspected_since.clear())

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
            self._suspected_since.clear()
            return
        self._records.expire_overdue()
        abandoned = self._records.abandoned()
        unpublished = [(job_id, 0) for job_id in self._without_message()]
        sure = self._suspect(abandoned + unpublished)
        for job_id, attempt in sure:
            with about(job_id=job_id, attempt=attempt):
                self._put_right(job_id, attempt)
        if time.monotonic() - self._cleaned_at > CLEANUP_S:
            self._records.cleanup(self._records.now() - self._ttl_s)
            self._cleaned_at = time.monotonic()

    def _put_right(self, job_id: str, attempt: int) -> None:
        if attempt:
            log.warning("job %s: the owner of attempt %d is gone", job_id, attempt)
            try_again(self._records, job_id, attempt, "its worker died or lost its connection")
        else:
            self._publish_again(job_id)

    def _suspect(self, lost: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those that have looked lost for SURE_S; they are suspected no more."""
        now = time.monotonic()
        self._suspected_since = {each: self._suspected_since.get(each, now) for each in lost}
        sure = [each for each, since in self._suspected_since.items() if now - since >= SURE_S]
        for each in sure:
            del self._suspected_since[each]
        return sure

    def _without_message(self) -> list[str]:
        """Queued jobs that the broker should have handed out by now.

        Messages are handed out in the order of their publishing, so a job that was queued well before the message that
        is next has none of its own. When no message is left, that is every job that was not queued just now.
        """
        following = self._redis.lindex(app.conf.task_default_queue, -1)
        published = self._records.now() if following is None else _published_at(following)
        if published is None:
            return []
        overdue = self._records.queued_before(published - MARGIN_S)
        return [job_id for job_id in overdue if job_id not in self._with_one_worker()] if overdue else []

    def _with_one_worker(self) -> set[str]:
        """The jobs whose message lies in the queue of a worker that takes jobs: the common order leaves them out."""
        taking = [worker.name for worker in workers(self._redis) if worker.quarantined is None]
        messages = [raw for name in taking for raw in self._redis.lrange(own_queue(name), 0, -1)]
        return {job_id for job_id in map(_job_of, messages) if job_id is not None}

    def _publish_again(self, job_id: str) -> None:
        attempt = self._records.to_the_back(job_id)
        if attempt is not None:
            log.warning("job %s: its message was lost, publishing it again", job_id)
            publish_again(self._records, job_id, attempt)


def _job_of(message: bytes | str) -> str | None:
    """Whose message it is; None for one that is not ours."""
    job_id, dot, _ = str(json.loads(message).get("headers", {}).get("id", "")).rpartition(".")
    return job_id if dot else None


def _published_at(message: bytes | str) -> float | None:
    """When a message in the broker's list was published; None for one that is not ours."""
    at = json.loads(message).get("headers", {}).get(PUBLISHED_AT)
    return None if at is None else float(at)
