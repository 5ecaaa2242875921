"""Events that show a job in Flower: its kernel, its stage and its end, but never its source.

Celery's own events only report received, started and succeeded. An additional event `task-<stage>` makes the stage the
task's state. A thread of its own sends it, so an unreachable broker loses the event but never delays a job.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from queue import Full, Queue
from threading import Thread
from typing import Any

from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from domain.job import Stage
from domain.kernel import Kernel
from domain.request import Request
from tasks.app import app
from tasks.jobs.job_queue import Claim

NAMES = ("name", "kernel_name", "function_name", "entry_point")
"""Metadata fields that may hold a kernel's name, in order of preference."""

WAITING = 32
SHORT_ID = 8

_PLAIN = re.compile(r"[A-Za-z_][\w:<>,.-]{0,59}")

log = logging.getLogger(__name__)


def label(job_id: str, attempt: int, request: Request | None = None) -> str:
    """How Flower names a job: kernel name and type and operation, if known, then short job id and attempt."""
    description = (
        (kernel_name(request.kernel), request.kernel.kernel_type, request.operation) if request is not None else ()
    )
    return " ".join(filter(None, (*description, f"{job_id[:SHORT_ID]}.{attempt}")))


def kernel_name(kernel: Kernel) -> str | None:
    """The kernel's name in its metadata, if it is one plain word: metadata may hold anything, even source code."""
    names = (kernel.metadata.get(key) for key in NAMES)
    return next((name for name in names if isinstance(name, str) and _PLAIN.fullmatch(name)), None)


class StageEventSender:
    """Sends the stage events of one process from a thread with a bounded queue."""

    def __init__(self) -> None:
        self._queue: Queue[tuple[str, str, Claim, Stage]] = Queue(WAITING)
        Thread(target=self._send, name="stage events", daemon=True).start()

    def report(self, task: Any, claim: Claim, stage: Stage) -> None:
        """Report that a job entered a stage, under the current Celery task.

        The task's message may have been sent for another job: see `tasks/jobs/job_queue.py`.
        """
        try:
            self._queue.put_nowait((task.request.id, task.request.hostname, claim, stage))
        except Full:
            log.debug("the broker is slow or away: Flower will not show every stage")

    def _send(self) -> None:
        while True:
            task_id, worker, claim, stage = self._queue.get()
            try:
                kernel_label = label(claim.job_id, claim.attempt, claim.request)
                with app.events.default_dispatcher(hostname=worker) as dispatcher:
                    dispatcher.send(f"task-{stage.value}", uuid=task_id, args=kernel_label, retry=False)
            except (KombuError, RedisError, OSError) as error:
                log.debug("Flower will not show every stage: %s", error)
            except Exception:
                log.exception("Flower will not show every stage")


@cache
def stage_event_sender() -> StageEventSender:
    """The sender of this process; its thread starts with the first job."""
    return StageEventSender()
