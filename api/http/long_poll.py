"""Long polling: delays a response until a job ends, by `?wait=SECONDS` or `Prefer: wait=SECONDS` (RFC 7240)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from flask import request
from marshmallow import validate
from redis.exceptions import RedisError

from api.schemas.fields import QuerySchema, RealNumber
from tasks.jobs.job_notifier import JobNotifier
from tasks.jobs.job_store import JobStore, JobView

MAX_WAIT_S = 600

_WAIT = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.IGNORECASE)


log = logging.getLogger(__name__)


class WaitQuerySchema(QuerySchema):
    wait = RealNumber(
        validate=validate.Range(0, MAX_WAIT_S, error="must be between {min} and {max} seconds"),
        metadata={"description": "Delay the response until the job is done, for at most that many seconds."},
    )


def parse_wait(query: dict[str, Any]) -> float:
    """Seconds that the client will wait: by the query, else by its preference (at most MAX_WAIT_S), else 0."""
    if "wait" in query:
        return float(query["wait"])
    for preference in request.headers.get("Prefer", "").split(","):
        if match := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(float(match[1]), MAX_WAIT_S)
    return 0.0


class LongPoll:
    """Lets clients wait for jobs; the hub limits how many wait at the same time."""

    def __init__(self, records: JobStore, hub: JobNotifier) -> None:
        self._records = records
        self.hub = hub

    def wait(self, view: JobView, seconds: float) -> tuple[JobView, bool]:
        """The job once it is terminal or the time is over, and whether a slot was free; without one, the job as it
        is."""
        if view.state.terminal or seconds <= 0:
            return view, True
        if not self.hub.try_enter():
            return view, False
        try:
            return self._wait(view, seconds), True
        finally:
            self.hub.leave()

    def wait_for_all(self, views: Sequence[JobView], seconds: float) -> tuple[list[JobView], bool]:
        """The same for many jobs, without their results: once all are terminal, or the time is over."""
        by_id = {view.job_id: view for view in views}
        pending = [view for view in views if not view.state.terminal]
        if not pending or seconds <= 0:
            return [*by_id.values()], True
        if not self.hub.try_enter():
            return [*by_id.values()], False
        deadline = time.monotonic() + seconds
        try:
            while pending and (remaining_s := deadline - time.monotonic()) > 0 and not self.hub.stopping():
                self._wait(pending[-1], remaining_s)  # Most of the others end before the newest.
                by_id |= {view.job_id: view for view in self._records.views(view.job_id for view in pending)}
                pending = [view for view in by_id.values() if not view.state.terminal]
        except RedisError as error:
            log.warning("%d jobs are waited for without their records: %s", len(pending), error)
        finally:
            self.hub.leave()
        return [*by_id.values()], True

    def changes(self, view: JobView, seconds: float, quiet_s: float) -> Iterator[JobView | None]:
        """The job as it is, then after each change; None where none came for `quiet_s`.

        Ends when the job is terminal, the time is over or the process stops. The caller holds a slot.
        """
        deadline = time.monotonic() + seconds
        with self.hub.watch(view.job_id) as change:
            yield (view := self._look(view))  # It may have changed before the watch began.
            while (
                not view.state.terminal and (remaining_s := deadline - time.monotonic()) > 0 and not self.hub.stopping()
            ):
                if change.wait(min(remaining_s, quiet_s)):
                    change.clear()
                    yield (view := self._look(view))
                elif remaining_s > quiet_s:
                    yield None

    def _wait(self, view: JobView, seconds: float) -> JobView:
        deadline = time.monotonic() + seconds
        with self.hub.watch(view.job_id, end=True) as change:
            change.set()  # It may have changed before the watch began.
            while (
                (remaining_s := deadline - time.monotonic()) > 0
                and not self.hub.stopping()
                and change.wait(remaining_s)
            ):
                change.clear()
                view = self._look(view)
                if view.state.terminal:
                    return view
        return self._look(view)  # A change of stage wakes no one here.

    def _look(self, view: JobView) -> JobView:
        """The job as it is now, or `view` where its record cannot be read.

        The record is missing if the job was terminal and was deleted. While the broker is unreachable, the job is still
        accepted: an error would make its client submit it again.
        """
        try:
            return self._records.get(view.job_id) or view
        except RedisError as error:
            log.warning("job %s is waited for without its record: %s", view.job_id, error)
            return view
