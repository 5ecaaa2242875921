"""Lists the cases of a job, and draws their speed-ups on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.axis import Axis, Mark
from api.pages.interval_plot import IntervalPlot, Measured, interval_plot
from api.pages.speedup import LEFT, RIGHT
from domain.result import Status

ROW, TOP = 34.0, 22.0
"""Height of a case in the drawing, and of what stands above the first."""
MAX_NAME = 60

Case = Mapping[str, Any]


@dataclass(frozen=True)
class CaseRow:
    """A case in the drawing: `y` its middle, and the places of its speed-up and of the interval's ends."""

    name: str
    y: float
    low: float
    ratio: float
    high: float


@dataclass(frozen=True)
class CasesFigure:
    """The speed-ups of all timed cases; `mean` is the place of their geometric mean."""

    rows: list[CaseRow]
    height: float
    axis_y: float
    one: float
    mean: float | None
    marks: list[Mark]


def cases_figure(result: Mapping[str, Any]) -> CasesFigure | None:
    """The drawing; None unless several cases have a speed-up."""
    drawn = [case for case in result.get("cases") or () if ((case.get("speedup") or {}).get("ratio") or 0) > 0]
    if len(drawn) < 2:
        return None
    ends = [end for case in drawn for end in _ends(case["speedup"])]
    axis = Axis.over([*ends, 0.9, 1.1], LEFT, RIGHT, powers=True)
    rows = [
        CaseRow(case["name"][:MAX_NAME], TOP + ROW * number + 22, *_places(case["speedup"], axis))
        for number, case in enumerate(drawn)
    ]
    axis_y = TOP + ROW * len(rows) + 8
    mean = (result.get("speedup") or {}).get("ratio")
    return CasesFigure(rows, axis_y + 24, axis_y, axis.place(1.0), axis.place(mean) if mean else None, axis.marks(5))


def sizes_figure(result: Mapping[str, Any]) -> IntervalPlot | None:
    """The speed-ups over the number of elements of the inputs; None unless the timed cases differ in it."""
    measured = [
        Measured.of(size, case["speedup"], case["name"][:MAX_NAME])
        for case in result.get("cases") or ()
        if (case.get("speedup") or {}).get("ratio") and (size := elements(case.get("shapes")))
    ]
    if len({each.at for each in measured}) < 2:
        return None
    return interval_plot(sorted(measured, key=lambda each: each.at), powers=True)


def elements(shapes: Sequence[Sequence[int]] | None) -> int | None:
    """Elements of all input tensors together; None where the shapes are not known."""
    return sum(math.prod(shape) for shape in shapes) if shapes else None


def cases_text(cases: Sequence[Case]) -> str:
    ratios = [f"{case['name']}: {words.figure(case['speedup']['ratio'])}" for case in cases if case.get("speedup")]
    return f"Ratios: {'; '.join(ratios)}; 1 is as fast as the reference."


def in_cases(result: Mapping[str, Any]) -> str:
    """The part about cases in a sentence about the outputs; empty without any."""
    summary = result.get("cases_summary")
    if not summary:
        return ""
    wrong = [case["name"] for case in result["cases"] if case["verdict"] == Status.WRONG_RESULT]
    if wrong:
        return f" in {len(wrong)} of {summary['count']} cases, first in {wrong[0]!r}"
    return f" in {'all ' if summary['passed'] == summary['count'] else ''}{words.counted(summary['passed'], 'case')}"


def _ends(speedup: Mapping[str, Any]) -> list[float]:
    ratio, low, high = (speedup.get(name) for name in ("ratio", "ci_low", "ci_high"))
    return [float(ratio or 1.0), float(low or ratio or 1.0), float(high if high is not None else ratio or 1.0)]


def _places(speedup: Mapping[str, Any], axis: Axis) -> tuple[float, float, float]:
    """The low end, the ratio and the high end on the axis; an end that the interval lacks is the axis's own."""
    ratio, low, high = _ends(speedup)
    low_at = axis.place(low) if speedup.get("ci_low") else axis.start
    return low_at, axis.place(ratio), axis.end if speedup.get("ci_high") is None else axis.place(high)
