"""Holding an answer until a job is done: `?wait=SECONDS`, or `Prefer: wait=SECONDS` (RFC 7240)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flask import request
from marshmallow import validate
from redis.exceptions import RedisError

from api.schemas.fields import RealNumber, WireSchema
from tasks.jobs.job_notifier import JobNotifier
from tasks.jobs.job_store import JobStore, JobView

MAX_WAIT_S = 600

_WAIT = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.IGNORECASE)


log = logging.getLogger(__name__)


class WaitQuerySchema(WireSchema):
    """How long to hold the answer."""

    wait = RealNumber(
        validate=validate.Range(0, MAX_WAIT_S, error="must be between {min} and {max} seconds"),
        metadata={"description": "Hold the answer for up to so many seconds, until the job is done."},
    )


def wanted(query: dict[str, Any]) -> float:
    """Seconds that the client is ready to wait: by the query, else by its preference (cut to what we grant), else 0."""
    if "wait" in query:
        return float(query["wait"])
    for preference in request.headers.get("Prefer", "").split(","):
        if found := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(float(found[1]), MAX_WAIT_S)
    return 0.0


class Waiters:
    """The clients that are being held, no more of them than the hub has places."""

    def __init__(self, records: JobStore, hub: JobNotifier) -> None:
        self._records = records
        self._hub = hub

    def end_when(self, stopping: Callable[[], bool]) -> None:
        """Answer everybody, within about a second, once the process is being stopped."""
        self._hub.stopping = stopping

    def hold(self, view: JobView, seconds: float) -> tuple[JobView, bool]:
        """The job once it is terminal or the time is over, and whether a place was had (without one: as it is)."""
        if view.state.terminal or seconds <= 0:
            return view, True
        if not self._hub.try_enter():
            return view, False
        try:
            return self._wait(view, seconds), True
        finally:
            self._hub.leave()

    def hold_all(self, views: Sequence[JobView], seconds: float) -> tuple[list[JobView], bool]:
        """The same for many jobs, without their results: once all are terminal, or the time is over."""
        now = {view.job_id: view for view in views}
        left = [view for view in views if not view.state.terminal]
        if not left or seconds <= 0:
            return [*now.values()], True
        if not self._hub.try_enter():
            return [*now.values()], False
        deadline = time.monotonic() + seconds
        try:
            while left and (rest := deadline - time.monotonic()) > 0 and not self._hub.stopping():
                self._wait(left[-1], rest)  # Most of the others end before the one that came last.
                now |= {view.job_id: view for view in self._records.views(view.job_id for view in left)}
                left = [view for view in now.values() if not view.state.terminal]
        except RedisError as error:
            log.warning("%d jobs are waited for without their records: %s", len(left), error)
        finally:
            self._hub.leave()
        return [*now.values()], True

    def enter(self) -> bool:
        """Take a place for a client that is held by other means; then `leave` gives it back."""
        return self._hub.try_enter()

    def leave(self) -> None:
        self._hub.leave()

    def changes(self, view: JobView, seconds: float, quiet_s: float) -> Iterator[JobView | None]:
        """The job as it is, then after each change; None where none came for `quiet_s`.

        Ends when the job is terminal, the time is over or the process is being stopped. Whoever reads has a place.
        """
        deadline = time.monotonic() + seconds
        with self._hub.watch(view.job_id) as change:
            yield (view := self._look(view))  # It may have moved before we watched.
            while not view.state.terminal and (left := deadline - time.monotonic()) > 0 and not self._hub.stopping():
                if change.wait(min(left, quiet_s)):
                    change.clear()
                    yield (view := self._look(view))
                elif left > quiet_s:
                    yield None

    def close(self) -> None:
        """Stop listening for changes and wake who is held."""
        self._hub.close()

    def _wait(self, view: JobView, seconds: float) -> JobView:
        deadline = time.monotonic() + seconds
        with self._hub.watch(view.job_id, end=True) as change:
            change.set()  # It may have moved before we watched.
            while (left := deadline - time.monotonic()) > 0 and not self._hub.stopping() and change.wait(left):
                change.clear()
                view = self._look(view)
                if view.state.terminal:
                    return view
        return self._look(view)  # Its stages woke nobody.

    def _look(self, view: JobView) -> JobView:
        """The job as it is now, as it was where nothing is known of it.

        That is so when it was terminal and has been cleaned up, and while the broker is away: the job is accepted, and
        an error would make its client submit it again.
        """
        try:
            return self._records.get(view.job_id) or view
        except RedisError as error:
            log.warning("job %s is waited for without its record: %s", view.job_id, error)
            return view
