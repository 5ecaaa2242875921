"""Draws results with matplotlib, which the extra `plot` installs; each function returns the axes that it drew on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_eval_client.result import Result
from kernel_eval_client.timing import Timing

REFERENCE_COLOUR, CANDIDATE_COLOUR = "tab:gray", "tab:blue"


def windows(result: Result, axes: Any = None) -> Any:
    """Time of a call in each timed window, in ms; a line at the time that counts, hollow where a window does not.

    Raises ValueError for a result without window times.
    """
    sides = {"candidate" if result.reference else "kernel": result.kernel, "reference": result.reference}
    timings: dict[str, Timing] = {name: side.timing for name, side in sides.items() if side and side.timing}
    timed = {name: timing for name, timing in timings.items() if timing.window_ms}
    if not timed:
        raise ValueError(f"job {result.job_id} has no window times: {result.explanation or result.verdict}")
    axes = _axes(axes)
    for name, timing in timed.items():
        colour = REFERENCE_COLOUR if name == "reference" else CANDIDATE_COLOUR
        numbers = range(len(timing.window_ms))
        faces = ["none" if number in timing.excluded_windows else colour for number in numbers]
        axes.scatter(numbers, timing.window_ms, facecolors=faces, edgecolors=colour, label=name)
        axes.axhline(timing.latency_ms, color=colour, linewidth=1)
    axes.set(xlabel="window", ylabel="ms a call")
    axes.legend()
    return axes


def speedups(results: Mapping[str, Result], axes: Any = None) -> Any:
    """Speed-up of each result, by name, with its 95 % interval; those without a speed-up have no point.

    An interval without an upper end is drawn up to the ratio. Raises ValueError if no result has a speed-up.
    """
    measured = [(name, one) for name, result in results.items() if (one := result.speedup) is not None]
    if not measured:
        raise ValueError("no result has a speed-up: " + "; ".join(f"{n}: {r.verdict}" for n, r in results.items()))
    axes = _axes(axes)
    ratios = [one.ratio for _, one in measured]
    below = [one.ratio - one.ci_low for _, one in measured]
    above = [0.0 if one.ci_high is None else one.ci_high - one.ratio for _, one in measured]
    axes.errorbar(ratios, [name for name, _ in measured], xerr=[below, above], fmt="o", color=CANDIDATE_COLOUR)
    axes.axvline(1.0, color=REFERENCE_COLOUR, linestyle="--")
    axes.set(xlabel="speed-up over the reference", xscale="log")
    return axes


def sweep(result: Result, argument: str, axes: Any = None) -> Any:
    """Times of all timed cases, in ms, over one of their numeric arguments; both axes are logarithmic.

    Raises ValueError if no timed case has the argument.
    """
    timed = [case for case in result.cases if case.runtime_ms is not None and argument in case.arguments]
    if not timed:
        raise ValueError(f"no timed case of job {result.job_id} has the argument {argument!r}")
    axes = _axes(axes)
    timed.sort(key=lambda case: case.arguments[argument])
    sizes = [case.arguments[argument] for case in timed]
    axes.plot(sizes, [case.runtime_ms for case in timed], "o-", color=CANDIDATE_COLOUR, label="candidate")
    if all(case.ref_runtime_ms is not None for case in timed):
        axes.plot(sizes, [case.ref_runtime_ms for case in timed], "o-", color=REFERENCE_COLOUR, label="reference")
    axes.set(xlabel=argument, ylabel="ms a call", xscale="log", yscale="log")
    axes.legend()
    return axes


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('drawing needs matplotlib: pip install "./client[plot]"') from error
    return pyplot.subplots()[1]
