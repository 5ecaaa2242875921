"""GET /job/<id>/events: a job's progress as server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apiflask import APIBlueprint
from flask import Response, request

from api.http.context import app_context
from api.http.long_poll import LongPoll
from api.http.problems import Kind, Problem
from api.http.responses import CROWDED_RETRY_S
from api.routes.jobs import find_job
from api.schemas.job import location
from api.webhook_dispatcher import message
from domain.job import Stage
from tasks.jobs.job_store import JobView

blueprint = APIBlueprint("events", __name__, tag="Jobs")

CONTENT_TYPE = "text/event-stream"
HELD_S = 600.0
"""Maximum duration of a stream, in s; a client that wants more reconnects, as browsers do automatically."""
QUIET_S = 15.0
RETRY_MS = 2000
_EVENT_ID = re.compile(r"([0-9]{1,6})\.([01])\.([01])")
_ANSWERS: dict[Any, Any] = {
    200: {
        "description": "Events `stage`, `verdict` and, as the last one, `done`; comments in between",
        "content": {CONTENT_TYPE: {"schema": {"type": "string"}}},
    },
    204: "The last event was seen already: a browser asks no more",
    404: "No such job",
    503: "All places to wait are taken, or the broker cannot be reached; try again after `Retry-After`",
}


@blueprint.get("/job/<job_id>/events")
@blueprint.doc(summary="A job's progress as server-sent events", responses=_ANSWERS)
def events(job_id: str) -> Response:
    """Each stage as it begins, the verdict about the outputs as soon as it is known, and how the job ended.

    With `Last-Event-ID`, only later events. Ends after `done`, or after ten minutes.
    """
    view = find_job(job_id)
    cursor = EventCursor.read(request.headers.get("Last-Event-ID", ""))
    if cursor.done:
        return Response(status=204)
    if request.method == "HEAD":
        return Response(content_type=CONTENT_TYPE)
    long_poll = app_context().long_poll
    if not long_poll.hub.try_enter():
        raise Problem(
            Kind.WAITERS_FULL,
            "all places to wait are taken; try again after Retry-After, or ask for the job itself",
            {"Retry-After": str(CROWDED_RETRY_S)},
            job=location(job_id),
        )
    response = Response(_stream(long_poll, view, cursor), content_type=CONTENT_TYPE)
    # Not at the end of the stream: a client that disconnects before its start must free the slot too.
    response.call_on_close(long_poll.hub.leave)
    response.headers["X-Accel-Buffering"] = "no"
    return response


@dataclass
class EventCursor:
    """The events of a job that a client has received: a number of stages, the verdict, the end. An event's id encodes
    them."""

    steps: int = 0
    verdict: bool = False
    done: bool = False

    @classmethod
    def read(cls, event_id: str) -> EventCursor:
        """Decodes an event's id; an unknown id means that nothing was received."""
        match = _EVENT_ID.fullmatch(event_id.strip())
        return cls(int(match[1]), match[2] == "1", match[3] == "1") if match else cls()

    def __str__(self) -> str:
        return f"{self.steps}.{self.verdict:d}.{self.done:d}"

    def unsent_events(self, view: JobView) -> Iterator[str]:
        """Yields the events that the client lacks, and marks them as received."""
        steps = [step for step in view.timeline if step.stage != Stage.DONE]
        for step in steps[self.steps :]:
            # The interim verdict precedes the stage `time`, even where the client gets both at once.
            if step.stage == Stage.TIME and step.attempt == view.attempt:
                yield from self._verdict(view, view.interim_correct)
            self.steps += 1
            yield self._event("stage", {"job_id": view.job_id, **step.to_wire()})
        yield from self._verdict(view, _compared(view) if view.state.terminal else view.interim_correct)
        if view.state.terminal:
            self.done = True
            of_webhooks = ("type", "operation", "error")
            yield self._event("done", {name: each for name, each in message(view).items() if name not in of_webhooks})

    def _verdict(self, view: JobView, correct: bool | None) -> Iterator[str]:
        if correct is not None and not self.verdict:
            self.verdict = True
            yield self._event("verdict", {"job_id": view.job_id, "correct": correct, "final": view.state.terminal})

    def _event(self, name: str, data: dict[str, Any]) -> str:
        # json.dumps writes no line breaks, so the data stay on one line.
        return f"id: {self}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def _stream(long_poll: LongPoll, view: JobView, cursor: EventCursor) -> Iterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    for now in long_poll.changes(view, HELD_S, QUIET_S):
        if now is None:
            yield ": still there\n\n"
        else:
            yield from cursor.unsent_events(now)


def _compared(view: JobView) -> bool | None:
    """Whether a comparison's outputs were right in the end; None without a comparison."""
    kernel: dict[str, Any] = (view.result or {}).get("kernel_exec_result") or {}
    return kernel.get("correctness") if kernel.get("comparison") is not None else None
