"""docs/measurements.md, generated from the data files."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.results.records import BY_HAND, Figure, Machine, Run, Subject, subjects
from domain.paths import ROOT

DOCUMENT = ROOT / "docs" / "measurements.md"

_INTRODUCTION = """\
# Measurements

Generated from `benchmarks/results/` by `python -m benchmarks.results`; a test fails when it is stale.
Each subject has its current figures. An older figure stays while a constant or a document cites it.
The Git history of this page has the earlier ones.

## Adding and repeating a figure

1. Run the command of the run on an otherwise idle machine. Each command has `--help`; `make help` lists the targets.
2. Edit the subject's file in `benchmarks/results/`: replace the figures that the new ones supersede.
3. Give date, commit, machine, load, the whole command, the number of repetitions and the spread, not the best value.
4. Name in `cited_by` each file that rests on the run and points to this page. Remove the run with its last citation.
5. Run `python -m benchmarks.results` and commit the page with the data.

"By hand" means that no program repeats the probe; the note says what was done. "For" names the files that cite a run.
"Before" a commit means that the measured tree is not in the history; its work is in that commit.
"""


def text() -> str:
    """The whole page, as Markdown."""
    return _INTRODUCTION + "\n" + "\n".join(_lines(subjects())) + "\n"


def _lines(every_subject: list[Subject]) -> Iterator[str]:
    for subject in every_subject:
        yield from [f"## {subject.title}", "", subject.about, ""]
        yield from _table("figures", "measured", "command")
        yield from (_run_row(run) for run in subject.runs)
        yield ""
    yield from ["## Machines", ""]
    yield from _table("machine", "GPU", "driver", "cores")
    machines = {run.machine: None for subject in every_subject for run in subject.runs}
    yield from (_machine_row(machine) for machine in machines)


def _table(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*["---"] * len(names))


def _run_row(run: Run) -> str:
    before, _, commit = run.commit.rpartition(" ")
    measured = f"{run.date} {before} `{commit}`".replace("  ", " ")
    command = "By hand" if run.command == BY_HAND else f"`{run.command}`"
    command += f": {run.note}" if run.note else ""
    if run.cited_by:
        command += "<br>For " + ", ".join(f"`{path}`" for path in run.cited_by)
    figures = [_described(figure) for figure in run.figures]
    return _row("<br>".join(figures), f"{measured}<br>{run.machine.name}, {run.load}", command)


def _described(figure: Figure) -> str:
    spread = "" if figure.low is None else f"{figure.low} to {figure.high}"
    details = [spread if figure.value is not None else "", f"n = {figure.n}" if figure.n else "", figure.note]
    value = f"{spread if figure.value is None else figure.value} {figure.unit}".strip()
    described = "; ".join(detail for detail in details if detail)
    return f"{figure.metric}: **{value}**" + (f" ({described})" if described else "")


def _machine_row(machine: Machine) -> str:
    return _row(machine.name, machine.gpu, machine.driver, machine.cores)


def _row(*cells: object) -> str:
    return "| " + " | ".join("" if cell is None else str(cell).strip() for cell in cells) + " |"
