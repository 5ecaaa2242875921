"""Parses a report that Nsight Compute printed with `--csv --page raw`: one row of counters for each kernel launch.

The submission's own process tree wrote the report, so that its text is untrusted: any defect raises ValueError. Figures
are converted to base units (byte, s, hz).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_CHARS = 4 * 1024 * 1024
MAX_LAUNCHES = 256
MAX_COLUMNS = 4096
NAME_CHARS = 512
UNIT_CHARS = 64
QUOTED_CHARS = 200

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,24})(?:\.\d{1,24})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DIMENSIONS = re.compile(r"\(\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\)", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
_PREFIXED = re.compile(r"([KMGTP])(byte|hz)")
_POWERS = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {
    unit: scale
    for scale, units in (
        (1.0, "s second"),
        (1e-3, "ms msecond"),
        (1e-6, "us usecond"),
        (1e-9, "ns nsecond"),
    )
    for unit in units.split()
}


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel's name, blocks and threads of a block, figures in base units and those units.

    `values` lacks the counters that ncu left empty or did not count, and those that are no number.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    values: Mapping[str, float]
    units: Mapping[str, str]


def read(printed: str) -> list[Launch]:
    """The launches in a printed report, in order. Raises ValueError for any other text."""
    if len(printed) > MAX_CHARS:
        raise ValueError(f"{len(printed)} characters of counters, {MAX_CHARS} are read at most")
    rows = _rows(printed)
    header = next(rows, None)
    if header is None:
        raise ValueError(f"no table of counters{_reason(printed)}")
    if header[:1] != ["ID"]:
        raise ValueError(f"no table of counters: it begins with {_quoted(','.join(header))}")
    if len(header) > MAX_COLUMNS:
        raise ValueError(f"{len(header)} columns of counters, {MAX_COLUMNS} are read at most")
    units = next(rows, None)
    if units is None or len(units) != len(header) or units[0]:
        raise ValueError("no row of units under the names of the counters")
    table = _Table(header, units)
    launches = [table.launch(row) for row in rows]
    if not launches:
        raise ValueError(f"no launch of a kernel was counted{_reason(printed)}")
    return launches


class _Table:
    """Converts rows to launches, by the header and the row of units."""

    def __init__(self, header: list[str], units: list[str]) -> None:
        columns = {name: at for at, name in enumerate(header)}
        missing = [name for name in ("Kernel Name", "Block Size", "Grid Size") if name not in columns]
        if missing:
            raise ValueError(f"the counters have no column {missing[0]!r}")
        self._width = len(header)
        self._name, self._block, self._grid = (columns[name] for name in ("Kernel Name", "Block Size", "Grid Size"))
        # Columns that describe the launch have capitals or blanks; a metric's name has neither.
        scaled = {name: base_unit(units[at]) for name, at in columns.items() if "__" in name or name == name.lower()}
        self._metrics = [(name, columns[name], scale) for name, (_, scale) in scaled.items()]
        self._units = {name: unit for name, (unit, _) in scaled.items()}

    def launch(self, row: list[str]) -> Launch:
        if len(row) != self._width:
            raise ValueError(f"a row of {len(row)} counters under {self._width} names")
        numbers = ((name, _number(row[at], scale)) for name, at, scale in self._metrics)
        values = {name: number for name, number in numbers if number is not None}
        return Launch(
            printable(row[self._name], NAME_CHARS) or "?",
            _dimensions(row[self._grid]),
            _dimensions(row[self._block]),
            values,
            self._units,
        )


def base_unit(unit: str) -> tuple[str, float]:
    """The base unit and the factor to convert a figure to it: "Gbyte/s" is ("byte/s", 1e9)."""
    parts = [_base(part) for part in printable(unit, UNIT_CHARS).split("/")]
    scale = parts[0][1]
    for _, below in parts[1:]:
        scale /= below
    return "/".join(name for name, _ in parts), scale


def printable(text: str, chars: int) -> str:
    """Untrusted text on one line, without control characters, and cut to `chars`."""
    return _UNPRINTABLE.sub(" ", text[: 2 * chars]).strip()[:chars]


def _base(unit: str) -> tuple[str, float]:
    if prefixed := _PREFIXED.fullmatch(unit):
        return prefixed[2], _POWERS[prefixed[1]]
    return ("s", _SECONDS[unit]) if unit in _SECONDS else (unit, 1.0)


def _rows(printed: str) -> Iterator[list[str]]:
    """The table's rows without ncu's own messages. Raises ValueError above MAX_LAUNCHES."""
    lines = (line for line in printed.splitlines(keepends=True) if line.strip() and not line.startswith("=="))
    try:
        for count, row in enumerate(csv.reader(lines, strict=True)):
            if count >= 2 + MAX_LAUNCHES:
                raise ValueError(f"more than {MAX_LAUNCHES} launches were counted")
            yield row
    except csv.Error as error:
        raise ValueError(f"not a table of counters: {error}") from error


def _number(cell: str, scale: float) -> float | None:
    """The number in a cell, None if it holds none: a cell may be empty, or hold `no data`, `n/a` or words."""
    if not _NUMBER.fullmatch(cell):
        return None
    number = float(cell.replace(",", "")) * scale
    return number if math.isfinite(number) else None


def _dimensions(cell: str) -> tuple[int, int, int]:
    match = _DIMENSIONS.fullmatch(cell.strip())
    if match is None:
        raise ValueError(f"no dimensions of a launch: {_quoted(cell)}")
    x, y, z = (int(part) for part in match.groups())
    return x, y, z


def _reason(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.startswith(("==ERROR==", "==WARNING==", "==PROF== No "))]
    return f"; ncu says: {printable(lines[0].split('== ', 1)[-1], QUOTED_CHARS)}" if lines else ""


def _quoted(text: str) -> str:
    return repr(printable(text, QUOTED_CHARS))
