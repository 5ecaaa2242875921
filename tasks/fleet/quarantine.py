"""Whether this worker's device can be trusted: after faults in a row it is tested, and takes no job until it passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event

from redis import Redis
from redis.exceptions import RedisError

from tasks.node.periodic_thread import PeriodicThread

EVERY_S = 1.0
IN_A_ROW = 3
"""Jobs that ended by a fault of ours on one worker, none between them whose kernel was run there to its verdict."""

TEST_AGAIN_S = 300.0
START_AGAIN_S = 30.0
"""A test that fails is repeated, and one that could not be started is started, after so many seconds."""

FAULTS = "workers:faults"
"""A hash: for each worker how many in a row, counted by the moves of the records (`tasks/jobs/job_lua_lib.py`)."""

QUARANTINED = "workers:quarantined"
"""A hash: the workers that take no jobs, and why. No job is sent to them either."""

log = logging.getLogger(__name__)


class Quarantine:
    """Of one worker, from a thread of its main process. `take(False)` has it take no more jobs, `take(True)` again.

    `test` says what is wrong with the device, or None; it is to return soon once the event that it is given is set.
    """

    def __init__(
        self, redis: Redis, name: str, take: Callable[[bool], None], test: Callable[[Event], str | None]
    ) -> None:
        self._redis = redis
        self._name = name
        self._take = take
        self._test = test
        self._stopping = Event()
        self._test_at = 0.0
        self.reason: str | None = None
        """Why it takes no jobs now."""
        self._loop = PeriodicThread("quarantine", self.look, EVERY_S)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._stopping.set()
        self._loop.stop()
        try:
            self._forget()
        except RedisError as error:
            log.warning("this worker may be in the list of the quarantined until it is started again: %s", error)

    def clear(self) -> None:
        """A worker begins: whatever was wrong with one of its name is to be found out anew."""
        self._forget()

    def look(self) -> None:
        """One pass; as long as the test lasts where one is due."""
        if self.reason is None:
            faults = int(self._redis.hget(FAULTS, self._name) or 0)
            if faults < IN_A_ROW:
                return
            self._hold(f"{faults} jobs in a row failed here by no fault of theirs; the device is being tested")
            self._take(False)
        elif time.monotonic() < self._test_at:
            return
        try:
            failed = self._test(self._stopping)
        except Exception as error:  # A lack of processes or memory, say, which proves nothing about the device.
            log.exception("the self-test could not be started")
            again_s = min(START_AGAIN_S, TEST_AGAIN_S)
            self._test_at = time.monotonic() + again_s
            reason = f"the self-test could not be started, that is tried every {again_s:.0f} s"
            self._hold(f"{reason}: {type(error).__name__}: {error}")
            return
        if self._stopping.is_set():
            return
        if failed is None:
            self._forget()
            self._take(True)
            self.reason = None
            log.warning("the self-test passed: taking jobs again")
            return
        self._test_at = time.monotonic() + TEST_AGAIN_S
        self._hold(f"the self-test failed, it is done again every {TEST_AGAIN_S:.0f} s: {failed}")

    def _hold(self, reason: str) -> None:
        log.critical("quarantined: %s", reason)
        self._redis.hset(QUARANTINED, self._name, reason)
        self.reason = reason

    def _forget(self) -> None:
        self._redis.hdel(FAULTS, self._name)
        self._redis.hdel(QUARANTINED, self._name)
