"""The client's drawings, and the notebook that shows them, run cell by cell against a real service on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from domain.paths import ROOT
from kernel_eval_client import Result
from tests.api import results

NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """matplotlib without a window; every figure is closed again."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    module = pytest.importorskip("matplotlib.pyplot", reason='pip install "./client[plot]"')
    yield module
    module.close("all")


def test_the_notebook_is_stored_without_outputs() -> None:
    assert (NOTEBOOK["nbformat"], len(CELLS)) == (4, 7)
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            compile("".join(cell["source"]), "notebook", "exec")


def test_the_notebook_runs(url: str, pyplot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_EVAL_URL", url)
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(CELLS):
        exec(compile(cell, f"cell {number}", "exec"), names)
    assert names["result"].passed and names["swept"].passed
    windows, speedups, sweep = (pyplot.figure(number).axes[0] for number in pyplot.get_fignums())
    assert [label.get_text() for label in windows.get_legend().get_texts()] == ["candidate", "reference"]
    assert len(speedups.containers) == 1
    assert list(sweep.lines[0].get_xdata()) == [64, 256, 1024, 4096]


def test_windows_that_do_not_count_are_hollow(pyplot: Any) -> None:
    from kernel_eval_client import plot

    axes = plot.windows(Result.from_dict(results.passed(2.0)))
    candidate, reference = axes.collections
    assert len(candidate.get_offsets()) == len(reference.get_offsets()) == 12
    assert [bool(face[3]) for face in candidate.get_facecolors()] == [number != 2 for number in range(12)]
    alone = plot.windows(Result.from_dict(results.evaluated()))
    assert [label.get_text() for label in alone.get_legend().get_texts()] == ["kernel"]


def test_speedups_with_and_without_an_upper_end(pyplot: Any) -> None:
    from kernel_eval_client import plot

    body = results.passed(4.0)
    body["speedup"]["ci_high"] = None
    made = {"bound": body, "measured": results.passed(2.0), "wrong": results.wrong()}
    axes = plot.speedups({name: Result.from_dict(each) for name, each in made.items()}, axes=pyplot.subplots()[1])
    (container,) = axes.containers
    points, _, (bars,) = container
    assert list(points.get_xdata()) == [4.0, 2.0]
    assert [tuple(round(float(end), 6) for end in bar[:, 0]) for bar in bars.get_segments()] == [(3.6, 4.0), (1.8, 2.2)]


def test_a_sweep_over_an_argument(pyplot: Any) -> None:
    from kernel_eval_client import plot

    axes = plot.sweep(Result.from_dict(results.of_cases()), "n")
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.2, 0.2, 0.2], [0.2 * 1.5, 0.2 * 0.8, 0.2 * 3.0]]


def test_what_cannot_be_drawn_is_named() -> None:
    from kernel_eval_client import plot

    wrong = Result.from_dict(results.wrong())
    with pytest.raises(ValueError, match="has no window times"):
        plot.windows(wrong)
    with pytest.raises(ValueError, match="no result has a speed-up: mine: wrong_result"):
        plot.speedups({"mine": wrong})
    with pytest.raises(ValueError, match="no timed case of job id has the argument 'n'"):
        plot.sweep(wrong, "n")
