"""Measured figures, read from one TOML file a subject.

A file has a `title`, one sentence `about` it and a list of runs. A run is one command on one machine at one commit. It
lists its figures, and in `cited_by` the files that rest on them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
BY_HAND = "by hand"
"""Command of a run that no program repeats; its note says what was done, and a file has to cite it."""
MAXIMUM_CELL = 150
"""Maximum length of a text, in characters: each is one cell of a table."""

Number = int | Decimal
"""Decimal keeps a figure's digits as they were written: 0.10 is not 0.1."""

_COMMIT = re.compile(r"(before )?[0-9a-f]{7}")


class RecordError(ValueError):
    """A data file that breaks the format; the message names the file, the place and what is expected."""


@dataclass(frozen=True)
class Machine:
    """The hardware of a run. No GPU's clock was locked."""

    name: str
    cores: int | None
    gpu: str | None
    driver: str | None


@dataclass(frozen=True)
class Figure:
    """A measured value in `unit`, its range (`low` to `high`), or both; `n` is the number of jobs or repetitions."""

    metric: str
    unit: str
    value: Number | None
    low: Number | None
    high: Number | None
    n: int | None
    note: str


@dataclass(frozen=True)
class Run:
    """One command on one machine. A commit "before" another has its work, but is not in the history itself."""

    date: date
    commit: str
    machine: Machine
    load: str
    command: str
    note: str
    cited_by: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Subject:
    """The runs of one file."""

    title: str
    about: str
    runs: tuple[Run, ...]


def subjects(folder: Path = FOLDER) -> list[Subject]:
    """All subjects, in the order of their files' names. Raises RecordError."""
    machines = {
        name: Machine(
            **_entry(table, f"machines.toml, {name}", {"name": str}, {"cores": int, "gpu": str, "driver": str})
        )
        for name, table in _read(folder / "machines.toml").items()
    }
    return [_subject(path, machines) for path in sorted(folder.glob("[0-9]*.toml"))]


def _subject(path: Path, machines: Mapping[str, Machine]) -> Subject:
    entry = _entry(_read(path), path.name, {"title": str, "about": str, "run": list}, {})
    runs = tuple(_run(table, f"{path.name}, run {number}", machines) for number, table in enumerate(entry["run"], 1))
    return Subject(entry["title"], entry["about"], runs)


def _run(table: Any, where: str, machines: Mapping[str, Machine]) -> Run:
    required = {"date": date, "commit": str, "machine": str, "load": str, "command": str, "figures": list}
    entry = _entry(table, where, required, {"note": str, "cited_by": list})
    if not _COMMIT.fullmatch(entry["commit"]):
        raise RecordError(f'{where}: `commit` has seven hexadecimal digits, or "before" and those')
    if entry["machine"] not in machines:
        raise RecordError(f"{where}: machines.toml has no {entry['machine']}")
    if entry["command"] == BY_HAND and not (entry["note"] and entry["cited_by"]):
        raise RecordError(f"{where}: a probe by hand needs a `note` that says what was done, and `cited_by`")
    figures = tuple(
        _figure(each, f"{where}, figure {number}") for number, each in enumerate(_filled(entry, "figures", where), 1)
    )
    cited_by = tuple(entry["cited_by"] or ())
    return Run(
        **entry
        | {
            "machine": machines[entry["machine"]],
            "note": entry["note"] or "",
            "cited_by": cited_by,
            "figures": figures,
        }
    )


def _figure(table: Any, where: str) -> Figure:
    number = (int, Decimal)
    optional = {"value": number, "low": number, "high": number, "n": int, "note": str}
    entry = _entry(table, where, {"metric": str, "unit": str}, optional)
    value, low, high = entry["value"], entry["low"], entry["high"]
    if (low is None) != (high is None) or (value is None and low is None):
        raise RecordError(f"{where}: give `value`, or `low` and `high`, or all three")
    if low is not None and not low <= (low if value is None else value) <= high:
        raise RecordError(f"{where}: `low`, `value` and `high` are not in this order")
    return Figure(**entry | {"note": entry["note"] or ""})


def _filled(entry: Mapping[str, Any], name: str, where: str) -> list[Any]:
    if not entry[name]:
        raise RecordError(f"{where}: `{name}` is empty")
    return list(entry[name])


def _entry(table: Any, where: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> dict[str, Any]:
    """The table's values under all names, None for what it lacks. Raises RecordError for anything unexpected."""
    if not isinstance(table, dict):
        raise RecordError(f"{where}: expected a table")
    if unexpected := set(table) - set(required) - set(optional):
        raise RecordError(f"{where}: unknown keys {sorted(unexpected)}")
    if missing := set(required) - set(table):
        raise RecordError(f"{where}: missing keys {sorted(missing)}")
    for name, value in table.items():
        _check(value, {**required, **optional}[name], f"{where}: `{name}`")
    return dict.fromkeys(optional) | table


def _check(value: Any, expected: Any, where: str) -> None:
    if not isinstance(value, expected) or isinstance(value, bool):
        raise RecordError(f"{where} has the type {type(value).__name__}")
    for text in _texts(value):
        if "|" in text or "\n" in text or text != text.strip() or len(text) > MAXIMUM_CELL:
            raise RecordError(f"{where} has to be one line of at most {MAXIMUM_CELL} characters without a bar")


def _texts(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            yield each


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise RecordError(f"{path.name}: {error}") from error
