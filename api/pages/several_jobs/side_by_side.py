"""Two jobs side by side: which is faster as far as that is certain, their figures, drawings and sources."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.pages import evidence, words
from api.pages.cases import cases_figure, cases_text
from api.pages.counters import counters
from api.pages.roofline import roofline
from api.pages.several_jobs.rows import JobRow, row
from api.pages.windows import windows_figure
from domain.job import State
from tasks.jobs.job_summary import Summary
from tasks.jobs.job_view import JobView

FIRST, SECOND = "first", "second"
MAX_LINES = 2000
"""Maximum lines of a source that is compared: the time grows with their product."""
ADDED, REMOVED, PLACE, SAME = "added", "removed", "place", "same"
_KINDS = {"+": ADDED, "-": REMOVED, "@": PLACE}


def template_values(views: Sequence[JobView], sources: tuple[str | None, str | None], now: float) -> dict[str, Any]:
    """The values of the template `side_by_side.html`; `sources` where they are stored, `now` in epoch seconds."""
    sides = {name: row(view, now) for name, view in zip((FIRST, SECOND), views, strict=True)}
    completed = {name: side.view for name, side in sides.items() if side.view.state is State.COMPLETED}
    results = {name: view.result for name, view in completed.items() if view.result}
    kernels = {name: result.get("kernel_exec_result") or {} for name, result in results.items()}
    reference = next((result["ref_result"] for result in results.values() if result.get("ref_result")), None)
    speedups = {
        "cases": [
            {"name": f"{name}: {sides[name].title}", "speedup": result["speedup"]}
            for name, result in results.items()
            if result.get("speedup")
        ]
    }
    windows = windows_figure({name: kernel.get("timing") for name, kernel in kernels.items()})
    return {
        "sides": sides,
        "conclusion": conclusion(*sides.values()),
        "results": results,
        "flags": {name: [flag["message"] for flag in evidence.flags(result)] for name, result in results.items()},
        "speedups": cases_figure(speedups),
        "speedups_text": cases_text(speedups["cases"]),
        "windows": windows,
        "roofline": roofline(kernels | ({"reference": reference} if reference else {})),
        "counters": [
            (name, counter_row)
            for name, result in results.items()
            if (tables := counters(result)) is not None
            for counter_row in (tables.sides[0].rows if tables.sides else ())
        ],
        "diff": source_diff(*sources),
    }


def conclusion(first: JobRow, second: JobRow) -> str:
    """Whether one of the jobs is faster, in a sentence; intervals that overlap decide nothing."""
    one, other = first.view.summary, second.view.summary
    lacking = [name for name, each in ((FIRST, one), (SECOND, other)) if each is None or each.ratio is None]
    if lacking:
        return f"The {' and the '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no speed-up to compare."
    assert one is not None and other is not None
    if one.reference != other.reference:
        return "They were judged against different references, so their speed-ups cannot be compared."
    if one.device != other.device:
        return f"They ran on different devices ({one.device}, {other.device}), so their speed-ups cannot be compared."
    for name, faster, slower in ((FIRST, one, other), (SECOND, other, one)):
        if slower.ci_high is not None and (faster.ci_low or 0.0) > slower.ci_high:
            return f"The {name} is faster: its whole interval ({_interval(faster)}) lies above {_interval(slower)}."
    return f"Which is faster cannot be told: the intervals overlap ({_interval(one)}; {_interval(other)})."


def _interval(one: Summary) -> str:
    return f"{words.figure(one.ci_low)} {'to ' + words.figure(one.ci_high) if one.ci_high is not None else 'upwards'}"


@dataclass(frozen=True)
class SourceDiff:
    """Lines with their kind (ADDED, REMOVED, PLACE or SAME); `reason` says why there are none."""

    lines: Sequence[tuple[str, str]]
    reason: str | None = None


def source_diff(first: str | None, second: str | None) -> SourceDiff:
    """The lines that the second source lacks or adds; None stands for a source that is not stored."""
    if first is None or second is None:
        return SourceDiff((), "The service did not keep the source of both jobs.")
    before, after = first.splitlines(), second.splitlines()
    if before == after:
        return SourceDiff((), "Both sources are the same.")
    if max(len(before), len(after)) > MAX_LINES:
        return SourceDiff((), f"A source has more than {MAX_LINES} lines: compare them on your own machine.")
    lines = list(difflib.unified_diff(before, after, lineterm=""))[2:]  # Without the names of the files.
    return SourceDiff([(_KINDS.get(line[:1], SAME), line) for line in lines])
