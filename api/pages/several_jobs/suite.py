"""The page of a suite: the share of problems that are right and faster than p, over p, and each problem's best job.

The client names a suite's jobs `problem:candidate`. docs/suites.md defines the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages.axis import Axis, Mark
from api.pages.several_jobs.rows import rows
from domain.result import Status
from tasks.jobs.job_summary import Summary
from tasks.jobs.job_view import JobView

FAST = (0.8, 1.0, 1.5, 2.0)
"""Values of p in the table (KernelBench's fast_p)."""
LEFT, RIGHT, TOP, BOTTOM = 52.0, 428.0, 12.0, 180.0
SEPARATOR = ":"
MAX_NAMES = 2000
"""Maximum number of names of one page, in the order of the names: it reads a record for each."""


@dataclass(frozen=True)
class Score:
    """Problems with a judged candidate, those with a correct one, and the shares that are faster than each of FAST.

    `surely` requires the whole interval above p. `mean` is the geometric mean of the measured speed-ups, if any.
    """

    title: str
    judged: int
    correct: int
    fast: list[float]
    surely: list[float]
    mean: float | None


@dataclass(frozen=True)
class CurveFigure:
    """The shares over p as points of two polylines; `one` is the place of p = 1."""

    fast: str
    surely: str
    across: list[Mark]
    up: list[tuple[str, float]]
    one: float


def template_values(prefix: str, newest_jobs: Sequence[JobView], now: float) -> dict[str, Any]:
    """The values of the template `suite.html`; `now` in epoch seconds.

    `newest_jobs` holds one of each name. A candidate counts by its newest job, a problem by its best candidate: the
    correct one with the highest lower end. One name beyond MAX_NAMES only shows that there are more.
    """
    newest = {view.name: view for view in newest_jobs[:MAX_NAMES] if view.name is not None and SEPARATOR in view.name}
    of_candidate: dict[str, list[JobView]] = {}
    for name, view in newest.items():
        of_candidate.setdefault(name.rpartition(SEPARATOR)[2], []).append(view)
    best = _best(newest.values())
    scores = [_score(candidate, _best(views)) for candidate, views in sorted(of_candidate.items())]
    if len(scores) > 1:
        scores.insert(0, _score("Best of all", best))
    return {
        "prefix": prefix,
        "rows": sorted(rows(best, now), key=lambda row: row.title),
        "scores": scores,
        "fast": FAST,
        "figure": _curve(best),
        "most_names": MAX_NAMES if len(newest_jobs) > MAX_NAMES else None,
        "unfinished": sum(not view.state.terminal for view in newest.values()),
        "now": now,
    }


def _best(views: Iterable[JobView]) -> list[JobView]:
    best: dict[str, JobView] = {}
    for view in views:
        problem = (view.name or "").rpartition(SEPARATOR)[0]
        best[problem] = max(best.get(problem, view), view, key=_worth)
    return list(best.values())


def _worth(view: JobView) -> tuple[bool, bool, float]:
    one = view.summary
    end = _lower_end(one) if one else None
    return _judged(one), _correct(one), -1.0 if end is None else end


def _judged(one: Summary | None) -> bool:
    """Whether the verdict says something about the kernel."""
    if one is None or one.verdict == Status.REFERENCE_FAILED:
        return False
    return one.verdict != Status.UNSUPPORTED or one.worker_lacks is None


def _correct(one: Summary | None) -> bool:
    return one is not None and one.verdict == Status.PASSED


def _lower_end(one: Summary) -> float | None:
    """The lower end of a speed-up that counts; None without one."""
    return one.ci_low if _correct(one) and one.ratio is not None and not one.fixed_outputs_pass else None


def _measured(views: Iterable[JobView]) -> list[tuple[float, float]]:
    """Ratio and lower end of each speed-up that counts; a mere upper bound has the ratio 0."""
    return [
        ((one.ratio or 0.0) if end else 0.0, end)
        for view in views
        if (one := view.summary) is not None and (end := _lower_end(one)) is not None
    ]


def _timed_count(judged: Sequence[JobView]) -> int:
    """Problems whose speed means something: outputs fixed beforehand would not pass."""
    return sum(not (view.summary and view.summary.fixed_outputs_pass) for view in judged)


def _score(title: str, views: Sequence[JobView]) -> Score:
    judged = [view for view in views if _judged(view.summary)]
    measured = _measured(judged)
    of = max(1, _timed_count(judged))
    # A bound is no measurement: the client's mean leaves it out too.
    logarithms = [
        math.log(one.ratio)
        for view in judged
        if (one := view.summary) and one.ratio and one.ci_high is not None and _lower_end(one)
    ]
    return Score(
        title,
        len(judged),
        sum(_correct(view.summary) for view in judged),
        [sum(ratio > p for ratio, _ in measured) / of for p in FAST],
        [sum(low > p for _, low in measured) / of for p in FAST],
        math.exp(sum(logarithms) / len(logarithms)) if logarithms else None,
    )


def _curve(views: Sequence[JobView]) -> CurveFigure | None:
    """The share that is faster than p, over p; None without a measured speed-up."""
    judged = [view for view in views if _judged(view.summary)]
    measured, of = _measured(judged), _timed_count(judged)
    ratios = [ratio for ratio, _ in measured if ratio > 0]
    ends = [end for _, end in measured if end > 0]
    if not ratios:
        return None
    x = Axis.over([*ratios, *ends, 0.5, 2.0], LEFT, RIGHT, powers=True)
    y = Axis(0.0, 1.0, BOTTOM, TOP)
    across = x.marks(5)
    up = [(f"{percent} %", y.place(percent / 100)) for percent in (0, 25, 50, 75, 100)]
    return CurveFigure(_steps(ratios, of, x, y), _steps(ends, of, x, y), across, up, x.place(1.0))


def _steps(values: Sequence[float], of: int, x: Axis, y: Axis) -> str:
    """The points of the share above each value: it falls by one job at each."""
    points, left = [(LEFT, y.place(len(values) / of))], len(values)
    for value in sorted(values):
        points += [(x.place(value), y.place(left / of)), (x.place(value), y.place((left - 1) / of))]
        left -= 1
    return " ".join(f"{across},{down}" for across, down in [*points, (RIGHT, y.place(0.0))])
