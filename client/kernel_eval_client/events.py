"""A job's progress as the service tells it: server-sent events, line by line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.errors import KernelEvalError, RateLimited, ServiceError
from kernel_eval_client.flow import Retry
from kernel_eval_client.wire import Answer, NoAnswer, error_of, job_path

DONE = "done"
SILENCE_S = 60.0
"""The service says that it is still there four times as often."""
NOTHING_MORE = 204


@dataclass(frozen=True)
class Event:
    """`name` is `stage`, `verdict` or, of the last one, `done`; what is in `data` is in docs/api.md."""

    id: str
    name: str
    data: Mapping[str, Any]


@dataclass
class Following:
    """How far a job was followed, through as many connections as it takes."""

    job_id: str
    retry: Retry
    url: str
    over: bool = False
    _last_id: str = ""
    _failures: int = 0
    _failed_since: float = 0.0
    _fields: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{job_path(self.job_id)}/events"

    def headers(self) -> dict[str, str]:
        """Of the next connection."""
        self._fields.clear()
        return {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._last_id} if self._last_id else {})

    def line(self, line: str) -> Event | None:
        """The event that this line ends."""
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
        self._last_id, self._failures = event.id, 0
        self.over = event.name == DONE
        return event

    def opened(self, answer: Answer) -> None:
        """The answer's beginning: its events follow, unless there are none or this raises."""
        if answer.status == NOTHING_MORE:
            self.over = True
        elif not answer.ok:
            raise error_of(answer)

    def pause(self, gone: KernelEvalError | NoAnswer | None) -> float:
        """Seconds until the next connection; None: the service has ended this one. Raises where that is of no use."""
        if gone is None:
            return 0.0
        error = gone.error(self.url) if isinstance(gone, NoAnswer) else gone
        if not isinstance(error, (ServiceError, RateLimited)):
            raise error
        now = time.monotonic()
        self._failed_since = now if self._failures == 0 else self._failed_since
        self._failures += 1
        seconds = self.retry.pause(self._failures, error.retry_after if isinstance(error, RateLimited) else None)
        if now + seconds > self._failed_since + self.retry.patience_s:
            raise error
        return seconds
