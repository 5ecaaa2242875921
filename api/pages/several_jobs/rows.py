"""A job as a row of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from api.pages.verdict import HEADLINES, NEUTRAL, OPEN, tone_of
from domain.job import State
from domain.result import Status
from tasks.jobs.job_view import JobView

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


@dataclass(frozen=True)
class JobRow:
    """A job in short; `word` is its verdict, or its state before there is one. `title` names the kernel."""

    view: JobView
    word: str
    tone: str
    title: str
    age: str


def rows(views: Iterable[JobView], now: float) -> list[JobRow]:
    """A row for each job; `now` in epoch seconds."""
    return [row(view, now) for view in views]


def row(view: JobView, now: float) -> JobRow:
    """The job's row; `now` in epoch seconds."""
    one = view.summary
    title = view.name or (one and (one.kernel or (one.candidate or "")[:8])) or view.operation
    age = ago(max(0.0, now - view.submitted_at))
    if view.state is State.COMPLETED and one is not None:
        status = Status(one.verdict)
        return JobRow(view, HEADLINES[status], tone_of(status), title, age)
    tone = NEUTRAL if view.state.terminal else OPEN
    return JobRow(view, view.state.value.capitalize(), tone, title, age)


def ago(seconds: float) -> str:
    """An age, in a suitable unit."""
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
