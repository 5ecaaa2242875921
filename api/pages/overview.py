"""The dashboard: the queue, the workers, recent verdicts and the leading candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.axis import Axis
from api.pages.several_jobs.rows import rows
from domain.job import State
from tasks.fleet.heartbeat import WorkerView
from tasks.jobs.job_view import JobView
from tasks.jobs.leaderboard import Board, Leader

LEFT, RIGHT = 6.0, 194.0


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
    board: Board
    reference_name: str
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
        "rows": rows(recent, now),
        "boards": [_figure(board) for board in boards],
        "ranked": ranked,
        "now": now,
    }


def _figure(board: Board) -> BoardFigure:
    values = [end for leader in board.leaders for end in (leader.summary.ci_low or 0.01, leader.summary.ci_high or 1.0)]
    axis = Axis.over([*values, 1.0], LEFT, RIGHT, powers=True)
    entries = []
    for above, leader in zip([None, *board.leaders], board.leaders, strict=False):
        one = leader.summary
        ends = (axis.place(one.ci_low or 0.01), axis.place(one.ratio or 1.0), axis.place(one.ci_high or 1.0))
        tied = above is not None and (one.ci_high or 0.0) >= (above.summary.ci_low or 0.0)
        entries.append(Place(leader, *ends, tied))
    name = words.reference(board.leaders[0].summary.reference_kernel, board.reference)
    return BoardFigure(board, name, entries, axis.place(1.0))
