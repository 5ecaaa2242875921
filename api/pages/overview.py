"""The dashboard: what is queued, who works, what was judged lately, and which candidates lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages.axis import Axis, Mark
from api.pages.verdict import BAD, GOOD, HEADLINES, OPEN, OURS
from domain.job import State
from domain.result import Status
from tasks.fleet.heartbeat import WorkerView
from tasks.fleet.prebuilder_registry import BuilderView
from tasks.jobs.job_view import JobView
from tasks.jobs.leaderboard import Board, Leader

LEFT, RIGHT = 6.0, 194.0
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


@dataclass(frozen=True)
class Row:
    """A recent job in short; `word` is its verdict, or its state before there is one."""

    view: JobView
    word: str
    tone: str
    age: str


@dataclass(frozen=True)
class Place:
    """A candidate on a board, with the places of its interval; `alike`: it cannot be told from the one above."""

    leader: Leader
    low: float
    ratio: float
    high: float
    alike: bool


@dataclass(frozen=True)
class BoardFigure:
    """A board with the axis of all its intervals."""

    board: Board
    places: list[Place]
    one: float
    marks: list[Mark]


def shown(
    counters: Mapping[str, float],
    workers: Sequence[WorkerView],
    builders: Sequence[BuilderView],
    recent: Sequence[JobView],
    boards: Sequence[Board],
    now: float,
) -> dict[str, Any]:
    """What the template `dashboard.html` shows."""
    states = {state.value: int(counters[f"by_state:{state.value}"]) for state in State}
    return {
        "states": states,
        "at_work": sum(states[state.value] for state in (State.BUILDING, State.WAITING, State.RUNNING)),
        "lately": int(counters["finished_last_300_s"]),
        "kept": int(counters["jobs"]),
        "workers": workers,
        "builders": builders,
        "taking": sum(worker.quarantined is None for worker in workers),
        "rows": [_row(view, now) for view in recent],
        "boards": [_figure(board) for board in boards],
        "now": now,
    }


def _row(view: JobView, now: float) -> Row:
    age = ago(max(0.0, now - view.submitted_at))
    if view.state is State.COMPLETED and view.summary is not None:
        status = Status(view.summary["verdict"])
        tone = GOOD if status is Status.PASSED else OURS if status is Status.REFERENCE_FAILED else BAD
        return Row(view, HEADLINES[status], tone, age)
    tones = {State.FAILED: OURS, State.CANCELLED: OURS}
    return Row(view, view.state.value.capitalize(), tones.get(view.state, OPEN), age)


def _figure(board: Board) -> BoardFigure:
    values = [end for leader in board.leaders for end in (leader.summary.ci_low or 0.01, leader.summary.ci_high or 1.0)]
    axis = Axis.over([*values, 1.0], LEFT, RIGHT, powers=True)
    places = []
    for above, leader in zip([None, *board.leaders], board.leaders, strict=False):
        one = leader.summary
        ends = (axis.place(one.ci_low or 0.01), axis.place(one.ratio or 1.0), axis.place(one.ci_high or 1.0))
        alike = above is not None and (one.ci_high or 0.0) >= (above.summary.ci_low or 0.0)
        places.append(Place(leader, *ends, alike))
    return BoardFigure(board, places, axis.place(1.0), axis.marks(3))


def ago(seconds: float) -> str:
    """How long ago, in the unit that suits it."""
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
