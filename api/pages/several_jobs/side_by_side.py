"""Two jobs side by side: which is faster as far as that is certain, their figures, drawings and sources."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
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

Result = Mapping[str, Any]
FIRST, SECOND = "first", "second"
MAX_LINES = 2000
"""Maximum lines of a source that is compared: the time grows with their product."""
ADDED, REMOVED, PLACE, SAME = "added", "removed", "place", "same"
_KINDS = {"+": ADDED, "-": REMOVED, "@": PLACE}


def template_values(
    views: tuple[JobView, JobView], sources: tuple[str | None, str | None], now: float
) -> dict[str, Any]:
    """The values of the template `side_by_side.html`; `sources` where they are stored, `now` in epoch seconds."""
    sides = {name: row(view, now) for name, view in zip((FIRST, SECOND), views, strict=True)}
    results = {name: side.view.result or {} for name, side in sides.items() if side.view.state is State.COMPLETED}
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
        "table": [(title, [_cell(results.get(name), of) for name in sides]) for title, of in FIGURES],
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


def _cell(result: Result | None, of: Callable[[Result], str]) -> str:
    return of(result) if result else words.NONE


def _speedup(result: Result) -> str:
    speedup = result.get("speedup")
    if not speedup:
        return words.NONE
    high = f"to {words.figure(speedup['ci_high'])}" if speedup["ci_high"] is not None else "upwards"
    return f"{words.figure(speedup['ratio'])}× ({words.figure(speedup['ci_low'])} {high})"


def _time(side: str) -> Callable[[Result], str]:
    def time(result: Result) -> str:
        timing = (result.get(side) or {}).get("timing")
        if not timing:
            return words.NONE
        sure = f" ± {words.share(timing['relative_ci'])}" if timing.get("relative_ci") is not None else ""
        return f"{words.duration(timing['latency_ms'], 4)}{sure}"

    return time


def _right_calls(result: Result) -> str:
    comparison = result["kernel_exec_result"].get("comparison")
    return (
        f"{words.count(comparison['calls_passed'])} of {words.count(comparison['calls'])}" if comparison else words.NONE
    )


def _launches(result: Result) -> str:
    timing = result["kernel_exec_result"].get("timing") or {}
    return words.plain(timing.get("launches"))


def _headroom(result: Result) -> str:
    return words.figure((result["kernel_exec_result"].get("headroom") or {}).get("ratio"))


def _flags(result: Result) -> str:
    return "; ".join(flag["message"] for flag in evidence.flags(result)) or "none"


def _device(result: Result) -> str:
    where = result.get("environment") or {}
    return str(where.get("gpu_name") or where.get("device") or words.NONE)


def _reference(result: Result) -> str:
    metadata = (result.get("ref_result") or {}).get("metadata") or {}
    return words.reference(metadata.get("kernel_name"), metadata.get("digest"))


FIGURES: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("Speed-up (95 % interval)", _speedup),
    ("A call", _time("kernel_exec_result")),
    ("A call of the reference", _time("ref_result")),
    ("Time over the least time", _headroom),
    ("Launches a call", _launches),
    ("Right calls", _right_calls),
    ("Flags", _flags),
    ("Device", _device),
    ("Reference", _reference),
)
"""The rows of the table of figures."""


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
