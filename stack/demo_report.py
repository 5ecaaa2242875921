"""The demo's table: expected and actual verdicts, and times."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.pages.words import figure
from stack.example_run import Trial

WIDTH = 116
"""Columns of the table, used where the output is no terminal."""


def table(trials: list[Trial]) -> RenderableType:
    """All trials, and below them the reasons of unexpected results."""
    view = Table(header_style="bold", pad_edge=False, box=None)
    for title in ("", "example", "expected", "verdict", "ms per call", "speed-up [95 %]", "job"):
        view.add_column(title, no_wrap=True, justify="right" if title in ("ms per call", "job") else "left")
    for trial in trials:
        view.add_row(*_row(trial))
    wrong = [trial for trial in trials if trial.done and not trial.as_expected]
    return Group(view, *(Text(f"{trial.example.name}: {trial.detail}", style="red") for trial in wrong))


def _row(trial: Trial) -> list[Text]:
    style = "green" if trial.as_expected else "bold red"
    mark = Text("✓" if trial.as_expected else "✗", style=style)
    name, expected, seconds = Text(trial.example.name), Text(trial.expected), Text(f"{trial.seconds:.1f} s")
    times, speedup = Text(_times(trial.result)), Text(_speedup(trial.speedup))
    return [mark, name, expected, Text(trial.got, style=style), times, speedup, seconds]


def _times(result: dict[str, Any]) -> str:
    """The mean time; for a comparison also the reference's: `1.2 → 0.3`."""
    kernel = result.get("kernel_exec_result") or {}
    if not kernel.get("timing"):
        return ""
    own = figure(kernel["runtime"])
    reference = (result.get("ref_runtime") or {}).get("mean")
    return f"{figure(reference)} → {own}" if reference else own


def _speedup(speedup: dict[str, Any] | None) -> str:
    if not speedup:
        return ""
    if speedup["ci_high"] is None:
        if speedup["ci_low"] == 0:
            return f"{figure(speedup['ratio'])}×, of too few windows for an interval"
        return f"at least {figure(speedup['ci_low'])}×"
    return f"{figure(speedup['ratio'])}× [{figure(speedup['ci_low'])} – {figure(speedup['ci_high'])}]"
