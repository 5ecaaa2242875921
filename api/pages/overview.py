"""The dashboard: the queue, the workers, recent verdicts and the leading candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages.axis import Axis
from api.pages.verdict import BAD, GOOD, HEADLINES, NEUTRAL, OPEN
from domain.job import State
from domain.result import Status
from tasks.fleet.heartbeat import WorkerView
from tasks.jobs.job_view import JobView
from tasks.jobs.leaderboard import Board, Leader

LEFT, RIGHT = 6.0, 194.0
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


@dataclass(frozen=True)
class JobRow:
    """A recent job in short; `word` is its verdict, or its state before there is one."""

    view: JobView
    word: str
    tone: str
    age: str


@dataclass(frozen=True)
class Place:
    """A candidate on a board, with the positions of its interval; `tied`: its interval overlaps the one above."""

    leader: Leader
    low: float
    ratio: float
    high: float
    tied: bool


@dataclass(frozen=True)
class BoardFigure:
    """A board with the axis of all its intervals."""

    board: Board
    entries: list[Place]
    one: float


def template_values(
    counters: Mapping[str, float],
    workers: Sequence[WorkerView],
    recent: Sequence[JobView],
    boards: Sequence[Board],
    ranked: int,
    now: float,
) -> dict[str, Any]:
    """The values of the template `dashboard.html`; `ranked` is how many of the newest jobs the boards are made of."""
    states = {state.value: int(counters[f"by_state:{state.value}"]) for state in State}
    return {
        "states": states,
        "at_work": sum(states[state.value] for state in (State.BUILDING, State.WAITING, State.RUNNING)),
        "recently_finished": int(counters["finished_last_300_s"]),
        "stored": int(counters["jobs"]),
        "workers": workers,
        "taking": sum(worker.quarantined is None for worker in workers),
        "rows": [_row(view, now) for view in recent],
        "boards": [_figure(board) for board in boards],
        "ranked": ranked,
        "now": now,
    }


def _row(view: JobView, now: float) -> JobRow:
    age = ago(max(0.0, now - view.submitted_at))
    if view.state is State.COMPLETED and view.summary is not None:
        status = Status(view.summary.verdict)
        tone = GOOD if status is Status.PASSED else NEUTRAL if status is Status.REFERENCE_FAILED else BAD
        return JobRow(view, HEADLINES[status], tone, age)
    tones = {State.FAILED: NEUTRAL, State.CANCELLED: NEUTRAL}
    return JobRow(view, view.state.value.capitalize(), tones.get(view.state, OPEN), age)


def _figure(board: Board) -> BoardFigure:
    values = [end for leader in board.leaders for end in (leader.summary.ci_low or 0.01, leader.summary.ci_high or 1.0)]
    axis = Axis.over([*values, 1.0], LEFT, RIGHT, powers=True)
    entries = []
    for above, leader in zip([None, *board.leaders], board.leaders, strict=False):
        one = leader.summary
        ends = (axis.place(one.ci_low or 0.01), axis.place(one.ratio or 1.0), axis.place(one.ci_high or 1.0))
        tied = above is not None and (one.ci_high or 0.0) >= (above.summary.ci_low or 0.0)
        entries.append(Place(leader, *ends, tied))
    return BoardFigure(board, entries, axis.place(1.0))


def ago(seconds: float) -> str:
    """An age, in a suitable unit."""
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
