"""What Flower shows of a job: which kernel it is, in which stage, how it ended. Never its source.

Celery's own events say no more than received, started and succeeded. An event `task-<stage>` of our own makes the stage
the task's state. It is sent by a thread that nobody waits for: a broker that is away costs the event and no time.
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
"""Of a kernel's metadata."""

WAITING = 32
SHORT_ID = 8

_PLAIN = re.compile(r"[A-Za-z_][\w:<>,.-]{0,59}")

log = logging.getLogger(__name__)


def label(job_id: str, attempt: int, request: Request | None = None) -> str:
    """The line that stands for a job among Flower's tasks: its kernel's name and type, and what is asked, if known."""
    known = (name_of(request.kernel), request.kernel.kernel_type, request.operation) if request is not None else ()
    return " ".join(filter(None, (*known, f"{job_id[:SHORT_ID]}.{attempt}")))


def name_of(kernel: Kernel) -> str | None:
    """What its sender calls it, if that is one plain word: metadata may hold anything, code too."""
    given = (kernel.metadata.get(key) for key in NAMES)
    return next((each for each in given if isinstance(each, str) and _PLAIN.fullmatch(each)), None)


class StageEvents:
    """Of one process."""

    def __init__(self) -> None:
        self._queue: Queue[tuple[str, str, Claim, Stage]] = Queue(WAITING)
        Thread(target=self._send, name="stage events", daemon=True).start()

    def tell(self, task: Any, claim: Claim, stage: Stage) -> None:
        """That a job has entered a stage, under this Celery task; its message may have been sent for another."""
        try:
            self._queue.put_nowait((task.request.id, task.request.hostname, claim, stage))
        except Full:
            log.debug("the broker is slow or away: Flower will not show every stage")

    def _send(self) -> None:
        while True:
            task_id, worker, claim, stage = self._queue.get()
            try:
                shown = label(claim.job_id, claim.attempt, claim.request)
                with app.events.default_dispatcher(hostname=worker) as dispatcher:
                    dispatcher.send(f"task-{stage.value}", uuid=task_id, args=shown, retry=False)
            except (KombuError, RedisError, OSError) as error:
                log.debug("Flower will not show every stage: %s", error)
            except Exception:
                log.exception("Flower will not show every stage")


@cache
def stage_events() -> StageEvents:
    """This process's; its thread starts with the first job."""
    return StageEvents()
