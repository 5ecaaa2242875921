"""GET /job/<id>/events: a job's progress as server-sent events, each as it happens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apiflask import APIBlueprint
from flask import Response, request

from api.http.context import desk
from api.http.long_poll import Waiters
from api.http.problems import Kind, Problem
from api.http.responses import CROWDED_RETRY_S
from api.pages.verdict import verdict
from api.routes.jobs import known
from api.schemas.job import location
from domain.job import Stage
from tasks.jobs.job_store import JobView

blueprint = APIBlueprint("events", __name__, tag="Jobs")

CONTENT_TYPE = "text/event-stream"
HELD_S = 600.0
"""A stream ends after that; a client that still wants to know asks again, as browsers do by themselves."""
QUIET_S = 15.0
RETRY_MS = 2000
_SEEN = re.compile(r"([0-9]{1,6})\.([01])\.([01])")
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
    """Each stage as it begins, the verdict about the answers as soon as it is known, and how the job ended.

    With `Last-Event-ID`, what comes after that event. Ends after `done`, or after ten minutes.
    """
    view = known(job_id)
    seen = Seen.read(request.headers.get("Last-Event-ID", ""))
    if seen.done:
        return Response(status=204)
    if request.method == "HEAD":
        return Response(content_type=CONTENT_TYPE)
    waiters = desk().waiters
    if not waiters.enter():
        raise Problem(
            Kind.WAITERS_FULL,
            "all places to wait are taken; try again after Retry-After, or ask for the job itself",
            {"Retry-After": str(CROWDED_RETRY_S)},
            job=location(job_id),
        )
    response = Response(_stream(waiters, view, seen), content_type=CONTENT_TYPE)
    # Not at the end of the stream: who goes away before its beginning gives the place back too.
    response.call_on_close(waiters.leave)
    response.headers["X-Accel-Buffering"] = "no"
    return response


@dataclass
class Seen:
    """What of a job a client has been told: so many of its steps, its verdict, its end. An event's id says it."""

    steps: int = 0
    verdict: bool = False
    done: bool = False

    @classmethod
    def read(cls, event_id: str) -> Seen:
        """Of an event's id; nothing was seen where it is none of ours."""
        found = _SEEN.fullmatch(event_id.strip())
        return cls(int(found[1]), found[2] == "1", found[3] == "1") if found else cls()

    def __str__(self) -> str:
        return f"{self.steps}.{self.verdict:d}.{self.done:d}"

    def news(self, view: JobView) -> Iterator[str]:
        """The events of the job that have not been told; from now on they have."""
        steps = [step for step in view.timeline if step["stage"] != Stage.DONE]
        for step in steps[self.steps :]:
            # What is known before the timing is told before it, also to who hears of both at once.
            if step["stage"] == Stage.TIME and step["attempt"] == view.attempt:
                yield from self._verdict(view, view.interim_correct)
            self.steps += 1
            yield self._event("stage", {"job_id": view.job_id, **step})
        yield from self._verdict(view, _compared(view) if view.state.terminal else view.interim_correct)
        if view.state.terminal:
            self.done = True
            yield self._event("done", _end(view))

    def _verdict(self, view: JobView, correct: bool | None) -> Iterator[str]:
        if correct is not None and not self.verdict:
            self.verdict = True
            yield self._event("verdict", {"job_id": view.job_id, "correct": correct, "final": view.state.terminal})

    def _event(self, name: str, data: dict[str, Any]) -> str:
        # JSON has no line breaks of its own, so that it is one line whatever is in it.
        return f"id: {self}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def _stream(waiters: Waiters, view: JobView, seen: Seen) -> Iterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    for now in waiters.changes(view, HELD_S, QUIET_S):
        if now is None:
            yield ": still there\n\n"
        else:
            yield from seen.news(now)


def _compared(view: JobView) -> bool | None:
    """Whether a comparison's answers were right in the end; None where none were compared."""
    kernel: dict[str, Any] = (view.result or {}).get("kernel_exec_result") or {}
    return kernel.get("correctness") if kernel.get("comparison") is not None else None


def _end(view: JobView) -> dict[str, Any]:
    """How the job ended, in short; the whole is at `job`."""
    return {
        "job_id": view.job_id,
        "state": view.state.value,
        "explanation": verdict(view).sentence,
        "summary": view.summary,
        "job": location(view.job_id),
        "report": f"{location(view.job_id)}/report",
    }
