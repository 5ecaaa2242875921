"""Repairs what a lost message or a dead worker left behind, in a thread of every worker's main process.

A lock in Redis lets one reconciler work at a time. A wrong repair is harmless: a surplus message claims nothing, and an
owner that was given up although it lives is fenced off. Constant wrong repairs would not be, so something counts as
lost only if two passes see it lost, SURE_S apart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from redis import Redis
from redis.exceptions import LockError, RedisError, ResponseError

from tasks.evaluation.celery_task import requeue_or_end
from tasks.fleet.heartbeat import forget_silent_workers, workers
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import end_pause, publish_more
from tasks.node.log_config import about
from tasks.node.periodic_thread import PeriodicThread
from tasks.node.redis_client import require_writes

EVERY_S = 2.0
SURE_S = 6.0
"""Seconds between the two passes: longer than owners need to report again after an outage expired all their keys."""

AT_ONCE = 500
"""Maximum number of messages that one pass sends per queue, and of jobs that it moves."""

LOCK = "reconciler:lock"
LOCK_TTL_S = 8
CLEANUP_S = 60.0

Lost = tuple[str, int | None]
"""A job and its ownerless attempt; or a queue and 0: lost messages; or a queue and None: all jobs of a lost worker."""

log = logging.getLogger(__name__)


class Reconciler:
    """The reconciler of one process; `run_once` does one pass, `start` repeats it."""

    def __init__(self, redis: Redis, records: JobStore, ttl_s: int) -> None:
        self._redis = redis
        self._records = records
        self._ttl_s = ttl_s
        self._lock = redis.lock(LOCK, timeout=LOCK_TTL_S, thread_local=False)
        self._suspected: dict[Lost, tuple[float, int]] = {}
        self._cleaned_at = 0.0
        # During an outage of Redis owners could not report, so earlier suspicions are dropped.
        self._loop = PeriodicThread("reconciler", self.run_once, EVERY_S, missed=lambda: self._suspected.clear())

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()
        try:
            self._lock.release()
        except LockError:
            log.debug("another reconciler has the lock")
        except RedisError as error:
            log.warning("the lock could not be released; another reconciler waits %d s for it: %s", LOCK_TTL_S, error)

    def run_once(self) -> None:
        """Delete old jobs once a minute; do one pass, if this process has the lock."""
        if time.monotonic() - self._cleaned_at > CLEANUP_S:
            # Several may do this at once. While Redis' memory is full nobody can take the lock, and this frees memory.
            # Noted first: were it to fail, the passes of the next minute would not.
            self._cleaned_at = time.monotonic()
            self._records.cleanup(self._records.now() - self._ttl_s)
        if not self._hold_lock():
            self._suspected.clear()
            return
        # While Redis takes no writes, owners cannot report either: the pass fails, and suspicions are dropped.
        require_writes(self._redis)
        self._try("jobs past their queue_timeout", self._records.expire_overdue)
        for job_id in self._records.queue.stranded(AT_ONCE):
            self._try(f"job {job_id}", partial(self._move, job_id))
        self._try("paused jobs", partial(end_pause, self._records))
        lost: dict[Lost, int] = dict.fromkeys(self._records.abandoned(), 1)
        forget_silent_workers(self._redis)
        active = {worker.name for worker in workers(self._redis) if worker.quarantined is None}
        for queue in self._records.queue.all():
            if queue.worker is not None and queue.worker not in active:
                lost[queue.name, None] = queue.jobs
            elif queue.jobs > queue.messages:
                lost[queue.name, 0] = queue.jobs - queue.messages
        for (name, attempt), count in self._suspect(lost):
            self._try(name, partial(self._repair, name, attempt, count))

    def _try(self, name: str, repair: Callable[[], object]) -> None:
        """Repair, unless the scripts cannot read a record, such as one that was changed by hand."""
        try:
            repair()
        except ResponseError as error:
            log.error("%s: not repaired, as a record cannot be read; repairing the others: %s", name, error)

    def _repair(self, name: str, attempt: int | None, count: int) -> None:
        if attempt is None:
            self._move_all(name)
        elif attempt:
            with about(job_id=name, attempt=attempt):
                log.warning("job %s: the owner of attempt %d is gone", name, attempt)
                requeue_or_end(self._records, name, attempt, "its worker died or lost its connection")
        else:
            self._send_messages(name, count)

    def _hold_lock(self) -> bool:
        """Keep the lock of the last pass, or take it if no reconciler has it."""
        # A lock that a dead one took before Redis' clock was set back would last for hours.
        self._redis.expire(LOCK, LOCK_TTL_S, lt=True)
        try:
            return bool(self._lock.reacquire())
        except LockError:
            return bool(self._lock.acquire(blocking=False))

    def _suspect(self, lost: dict[Lost, int]) -> list[tuple[Lost, int]]:
        """Everything that was lost for SURE_S, with the smallest count seen in that time; removes it from the list."""
        now = time.monotonic()
        suspected = self._suspected
        self._suspected = {
            item: (suspected[item][0], min(suspected[item][1], count)) if item in suspected else (now, count)
            for item, count in lost.items()
        }
        sure = [(item, count) for item, (since, count) in self._suspected.items() if now - since >= SURE_S]
        for item, _ in sure:
            del self._suspected[item]
        return sure

    def _send_messages(self, queue: str, count: int) -> None:
        """Send messages to a queue that lacks some for longer than a worker needs to claim a job."""
        log.warning("queue %s: %d messages were lost; sending new ones", queue, count)
        for _ in range(min(count, AT_ONCE)):
            if not publish_more(queue):
                return

    def _move_all(self, queue: str) -> None:
        """Move the jobs of a queue whose worker is gone, or takes no jobs."""
        for job_id in self._records.queue.jobs(queue, AT_ONCE):
            log.warning("job %s: no worker serves queue %s; moving it", job_id, queue)
            self._try(f"job {job_id}", partial(self._move, job_id))
        self._redis.delete(queue)  # Deletes its messages; jobs that enter it later get new ones.

    def _move(self, job_id: str) -> None:
        """Let a queued job enter the queue that suits it now."""
        queue = self._records.queue.move(job_id)
        log.info("job %s: moved to queue %s", job_id, queue)
        if queue is not None:
            publish_more(queue)
