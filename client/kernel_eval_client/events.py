"""Reads a job's progress: the service's server-sent events, line by line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.errors import KernelEvalError, RateLimited, ServiceError
from kernel_eval_client.flow import Retry
from kernel_eval_client.wire import NoResponse, Response, error_of, job_path

DONE = "done"
SILENCE_S = 60.0
"""Maximum time without a line from the service, in s; it sends a sign of life four times as often."""
NOTHING_MORE = 204


@dataclass(frozen=True)
class Event:
    """One event. `name` is `stage` or `verdict`, and `done` for the last; docs/api.md describes `data`."""

    id: str
    name: str
    data: Mapping[str, Any]


@dataclass
class EventStream:
    """The state of reading one job's events, over as many connections as that takes."""

    job_id: str
    retry: Retry
    url: str
    over: bool = False
    _last_id: str = ""
    _empty: int = 0
    """Number of consecutive connections that brought no event."""
    _failures: int = 0
    _failed_since: float = 0.0
    _fields: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{job_path(self.job_id)}/events"

    def headers(self) -> dict[str, str]:
        """The headers of the next connection."""
        self._fields.clear()
        self._empty += 1
        return {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._last_id} if self._last_id else {})

    def line(self, line: str) -> Event | None:
        """Reads one line; returns the event that it completes, or None."""
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "event" not in fields:
            return None
        try:
            data = json.loads(fields.get("data", ""))
        except ValueError as error:
            raise ServiceError("an event of the service is no JSON; is there another service?") from error
        event = Event(fields.get("id", ""), fields["event"], data)
        self._last_id, self._failures, self._empty = event.id, 0, 0
        self.over = event.name == DONE
        return event

    def check_response(self, response: Response) -> None:
        """Checks the status of a new connection's response. Raises the error of a failed one."""
        if response.status == NOTHING_MORE:
            self.over = True
        elif not response.ok:
            raise error_of(response)

    def pause(self, failure: KernelEvalError | NoResponse | None) -> float:
        """Seconds until the next connection. `failure` is None if the service closed it. Raises after the patience."""
        if failure is None:
            return self.retry.pause(self._empty, None) if self._empty else 0.0
        error = failure.error(self.url) if isinstance(failure, NoResponse) else failure
        if not isinstance(error, (ServiceError, RateLimited)):
            raise error
        now = time.monotonic()
        self._failed_since = now if self._failures == 0 else self._failed_since
        self._failures += 1
        seconds = self.retry.pause(self._failures, error.retry_after if isinstance(error, RateLimited) else None)
        if now + seconds > self._failed_since + self.retry.patience_s:
            raise error
        return seconds
