"""What connects a job under work with its record: a thread, so that a Redis that is away never stops the pipeline."""

from __future__ import annotations

import contextvars
import logging
import os
import time
from collections import deque
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from redis.exceptions import RedisError

from domain.fault import JobCancelled
from domain.job import Stage
from tasks.jobs.job_store import JobRecords
from tasks.node.log_config import note

PULSE_S = 0.2
SLACK_S = 60.0
"""What a job may take beyond its own time: starting a zygote, calibrating, cleaning up."""

STUCK_EXIT = 70

log = logging.getLogger(__name__)


class Superseded(Exception):
    """This attempt no longer holds its job: it was given up for dead, or the job has ended."""


class Watch:
    """Beside one attempt: reports its stages, says that it is alive, hears whether to stop, and ends it if it hangs.

    A job has `seconds` for building and running, plus SLACK_S, waiting for the device aside. A referee over it is
    stuck through a fault of ours; its process exits, and the job is queued again by whoever notices.
    """

    def __init__(self, records: JobRecords, job_id: str, attempt: int, seconds: float) -> None:
        self._records = records
        self._job_id = job_id
        self._attempt = attempt
        self._allowance = seconds + SLACK_S
        self._stages: deque[tuple[Stage, bool | None, float]] = deque()
        self._stage = Stage.BUILD
        self._lock = Lock()
        self._waiting = False
        self._wake = Event()
        self._over = Event()
        self._cancel = Event()
        self._lost = Event()
        self._reachable = True
        # In a copy of the context: lines of the thread say which job they are about, and in which stage.
        self._thread = Thread(
            target=contextvars.copy_context().run, args=(self._run,), name=f"watch {job_id}", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._wake.set()
        self._thread.join()

    def progress(self, stage: Stage) -> None:
        """Enter a stage. Raises JobCancelled or Superseded when the job is to stop."""
        note(stage=stage.value)
        with self._lock:
            self._waiting = stage is Stage.WAIT_FOR_DEVICE
            self._stage = stage
            self._stages.append((stage, None, time.monotonic()))
        self._wake.set()
        if self._lost.is_set():
            raise Superseded(f"attempt {self._attempt} of job {self._job_id} has been given up")
        if self._cancel.is_set():
            raise JobCancelled(f"job {self._job_id} was cancelled")

    def so_far(self, right: bool) -> None:
        """Whether the candidate is right as far as it was compared; shown with the stage that the job is in."""
        with self._lock:
            self._stages.append((self._stage, right, time.monotonic()))
        self._wake.set()

    def report_rest(self, records: JobRecords) -> None:
        """After the block: the stages that could not be reported while Redis was away, through a patient connection."""
        self._report_stages(records)

    def cancelled(self) -> bool:
        """Whether the job is to stop, for whichever reason."""
        return self._cancel.is_set() or self._lost.is_set()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._over.is_set():
            self._wake.wait(PULSE_S)
            self._wake.clear()
            self._talk()
            now = time.monotonic()
            with self._lock:
                self._allowance -= 0 if self._waiting else now - before
            before = now
            if self._allowance < 0:
                log.critical("job %s hangs in attempt %d; ending this process", self._job_id, self._attempt)
                os._exit(STUCK_EXIT)
        # What was entered at the very end.
        self._talk()

    def _talk(self) -> None:
        try:
            self._report_stages(self._records)
            answer = self._records.pulse(self._job_id, self._attempt)
        except RedisError as error:
            if self._reachable:
                log.warning("job %s goes on without its record, trying on: %s", self._job_id, error)
            self._reachable = False
            return
        except Exception:
            # A thread that ended here would leave the attempt without a sign of life, and without an end if it hangs.
            if self._reachable:
                log.exception("job %s goes on without its record, trying on", self._job_id)
            self._reachable = False
            return
        self._reachable = True
        if answer == "lost":
            self._lost.set()
        elif answer == "cancel":
            self._cancel.set()

    def _report_stages(self, records: JobRecords) -> None:
        while self._stages:
            stage, right, since = self._stages[0]
            ago = time.monotonic() - since
            if not records.advance(self._job_id, self._attempt, stage, ago=ago, right=right):
                self._lost.set()
                return
            self._stages.popleft()
