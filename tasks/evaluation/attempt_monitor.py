"""The monitor of a running job: a thread updates the job's record, so an outage of Redis never stops the job."""

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
from tasks.jobs.job_store import JobStore
from tasks.node.log_config import note

PULSE_S = 0.2
SLACK_S = 60.0
"""Maximum seconds of a job beyond its own time: starting a zygote, calibrating, cleaning up."""

STUCK_EXIT = 70

log = logging.getLogger(__name__)


class Superseded(Exception):
    """This attempt no longer owns its job: the reconciler gave it up, or the job has ended."""


class AttemptMonitor:
    """Runs beside one attempt: reports its stages, sends pulses, learns of a cancellation, and ends a hung process.

    A job has `seconds` for building and running, plus SLACK_S, without its wait for the device. A referee that exceeds
    them is stuck through a fault of the service: its process exits, and the worker or the reconciler requeues the job.
    """

    def __init__(self, records: JobStore, job_id: str, attempt: int, seconds: float) -> None:
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
        # A copy of the context: log lines of the thread then name the job and its stage.
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
        """Enter a stage. Raises JobCancelled or Superseded if the job must stop."""
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

    def on_interim_result(self, interim_correct: bool) -> None:
        """Report the interim verdict of the candidate; it is stored with the current stage."""
        with self._lock:
            self._stages.append((self._stage, interim_correct, time.monotonic()))
        self._wake.set()

    def report_pending_stages(self, records: JobStore) -> None:
        """After the block: report the stages that an outage of Redis held back, through a patient connection."""
        self._report_stages(records)

    def cancelled(self) -> bool:
        """Whether the job must stop, for any reason."""
        return self._cancel.is_set() or self._lost.is_set()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._over.is_set():
            self._wake.wait(PULSE_S)
            self._wake.clear()
            self._exchange()
            now = time.monotonic()
            with self._lock:
                self._allowance -= 0 if self._waiting else now - before
            before = now
            if self._allowance < 0:
                log.critical("job %s hangs in attempt %d; ending this process", self._job_id, self._attempt)
                os._exit(STUCK_EXIT)
        # The stages that the job entered at the very end.
        self._exchange()

    def _exchange(self) -> None:
        try:
            self._report_stages(self._records)
            answer = self._records.pulse(self._job_id, self._attempt)
        except RedisError as error:
            if self._reachable:
                log.warning("job %s continues without its record, retrying: %s", self._job_id, error)
            self._reachable = False
            return
        except Exception:
            # If this thread ended here, the attempt would send no more pulses, and a hang would not be noticed.
            if self._reachable:
                log.exception("job %s continues without its record, retrying", self._job_id)
            self._reachable = False
            return
        self._reachable = True
        if answer == "lost":
            self._lost.set()
        elif answer == "cancel":
            self._cancel.set()

    def _report_stages(self, records: JobStore) -> None:
        """Writes newly entered stages into the job's record; notes when another worker has the job."""
        while self._stages:
            stage, interim_correct, since = self._stages[0]
            ago = time.monotonic() - since
            if not records.enter_stage(self._job_id, self._attempt, stage, ago=ago, interim_correct=interim_correct):
                self._lost.set()
                return
            self._stages.popleft()
