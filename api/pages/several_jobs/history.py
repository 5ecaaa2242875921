"""The attempts under one name: their speed-ups in order, the best so far, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from api.pages import words
from api.pages.interval_plot import IntervalPlot, Measured, interval_plot
from api.pages.several_jobs.rows import JobRow, rows
from domain.result import Status
from tasks.jobs.job_search import Found
from tasks.jobs.job_view import JobView

MAX_ATTEMPTS = 200


@dataclass(frozen=True)
class Attempt:
    """A job under the name, numbered from 1 for the oldest; `before` is the attempt before it, `best` the best yet.

    `other_task`: it was judged against another reference or on another device than the newest measured one.
    """

    number: int
    row: JobRow
    before: JobRow | None
    best: bool
    other_task: bool


def template_values(name: str, result: Found, now: float) -> dict[str, Any]:
    """The values of the template `history.html`; `now` in epoch seconds.

    Attempts against another reference or on another device than the newest measured one are listed and not drawn.
    """
    oldest_first = result.views[::-1]
    task = next((_task(view) for view in result.views if _lower_end(view) is not None), None)
    attempts, best_end, before = [], 0.0, None
    for number, row in enumerate(rows(oldest_first, now), 1):
        end = _lower_end(row.view) if _task(row.view) == task else None
        other_task = row.view.summary is not None and task is not None and _task(row.view) != task
        attempts.append(Attempt(number, row, before, end is not None and end > best_end, other_task))
        best_end, before = max(best_end, end or 0.0), row
    measured = [each for each in attempts if _lower_end(each.row.view) is not None and _task(each.row.view) == task]
    best = max((attempt for attempt in attempts if attempt.best), key=lambda each: each.number, default=None)
    return {
        "name": name,
        "attempts": attempts[::-1],
        "passed": sum(attempt.row.tone == "good" for attempt in attempts),
        "best": best,
        "reference": _reference(best.row.view) if best else None,
        "device": task[1] if task else None,
        "figure": _figure(measured),
        "complete": result.cursor is None,
        "now": now,
    }


def _task(view: JobView) -> tuple[str | None, str | None]:
    """Reference and device; speed-ups are comparable only where both are the same."""
    return (view.summary.reference, view.summary.device) if view.summary else (None, None)


def _reference(view: JobView) -> str:
    one = view.summary
    return words.reference(one.reference_kernel, one.reference) if one else words.NONE


def _lower_end(view: JobView) -> float | None:
    """The lower end of the speed-up; None for a job that did not pass, or on inputs that were known beforehand."""
    one = view.summary
    measured = one is not None and one.verdict == Status.PASSED and one.ratio is not None and not one.inputs_replayed
    return one.ci_low if measured and one is not None else None


def _figure(attempts: Sequence[Attempt]) -> IntervalPlot | None:
    """The drawing of the measured attempts, and a line of the best lower end so far; None without any."""
    measured = [
        Measured.of(attempt.number, asdict(one), f"attempt {attempt.number}")
        for attempt in attempts
        if (one := attempt.row.view.summary) is not None
    ]
    if not measured:
        return None
    line, best = [], 0.0
    for each in measured:
        if each.low > best:
            line += [(each.at, best)] if best else []
            best = each.low
            line.append((each.at, best))
    line.append((measured[-1].at, best))
    return interval_plot(measured, powers=False, line=line, whole=True)
