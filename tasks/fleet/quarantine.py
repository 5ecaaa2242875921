"""Quarantine of a worker: after consecutive faults it tests its device, and takes no job until the test passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event

from redis import Redis
from redis.exceptions import RedisError

from tasks.node.periodic_thread import PeriodicThread

EVERY_S = 1.0
CONSECUTIVE_FAULTS = 3
"""Consecutive jobs of a worker that failed by a fault of the service, without a verdict on a kernel in between."""

TEST_AGAIN_S = 300.0
START_AGAIN_S = 30.0
"""Seconds until a failed test is repeated, and until a test that could not start is tried again."""

FAULTS = "workers:faults"
"""A hash: consecutive faults of each worker, counted by the transitions of jobs
(`tasks/jobs/lua/shared/job_end.lua`)."""

QUARANTINED = "workers:quarantined"
"""A hash: the quarantined workers, with the reason. No job is queued for them either."""

log = logging.getLogger(__name__)


class Quarantine:
    """The quarantine of one worker, in a thread of its main process. `take(False)` stops it from taking jobs.

    `test` returns what is wrong with the device, or None; it must return soon after its event is set.
    """

    def __init__(
        self,
        redis: Redis,
        name: str,
        take: Callable[[bool], None],
        test: Callable[[Event], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._name = name
        self._take = take
        self._test = test
        self._clock = clock
        self._stopping = Event()
        self._test_at = 0.0  # By the clock.
        self.reason: str | None = None
        """Why the worker takes no jobs now; None if it does."""
        self._loop = PeriodicThread("quarantine", self.run_once, EVERY_S)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._stopping.set()
        self._loop.stop()
        try:
            self.clear()
        except RedisError as error:
            log.warning("this worker may stay listed as quarantined until it starts again: %s", error)

    def run_once(self) -> None:
        """Do one pass; it lasts as long as the test, if one is due."""
        if self.reason is None:
            faults = int(self._redis.hget(FAULTS, self._name) or 0)
            if faults < CONSECUTIVE_FAULTS:
                return
            self._record(f"{faults} consecutive jobs failed here by no fault of theirs; the device is being tested")
            self._take(False)
        elif self._clock() < self._test_at:
            return
        try:
            failed = self._test(self._stopping)
        except Exception as error:  # A lack of processes or memory, for example, proves nothing about the device.
            log.exception("the self-test could not be started")
            again_s = min(START_AGAIN_S, TEST_AGAIN_S)
            self._test_at = self._clock() + again_s
            reason = f"the self-test could not be started; it is tried every {again_s:.0f} s"
            self._record(f"{reason}: {type(error).__name__}: {error}")
            return
        if self._stopping.is_set():
            return
        if failed is None:
            self.clear()
            self._take(True)
            self.reason = None
            log.warning("the self-test passed: taking jobs again")
            return
        self._test_at = self._clock() + TEST_AGAIN_S
        self._record(f"the self-test failed; it is repeated every {TEST_AGAIN_S:.0f} s: {failed}")

    def _record(self, reason: str) -> None:
        log.critical("quarantined: %s", reason)
        self._redis.hset(QUARANTINED, self._name, reason)
        self.reason = reason

    def clear(self) -> None:
        """Forget the faults that were counted under this name, those of an earlier worker too."""
        self._redis.hdel(FAULTS, self._name)
        self._redis.hdel(QUARANTINED, self._name)
