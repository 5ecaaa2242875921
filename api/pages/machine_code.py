"""What a side was compiled to: what each kernel's machine code needs, and where its code can be read as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.untyped import objects
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.artifact_store import Entry, entries

Made = Mapping[str, Any]
Result = Mapping[str, Any]
SHOWN = 12
"""Kernels of one build."""


@dataclass(frozen=True)
class Row:
    """One kernel, or one configuration of it, in words; figures that are not known are "–"."""

    name: str
    registers: str
    local: str
    spills: str
    shared: str
    occupancy: str
    limited_by: str


@dataclass(frozen=True)
class Code:
    """One side's: its rows, its texts, and why others cannot be had (pairs of what and why)."""

    side: str
    title: str
    rows: list[Row]
    texts: list[Entry]
    lacking: list[tuple[str, str]]


def codes(result: Result) -> list[Code]:
    """Of each side that has anything to show."""
    compared = bool(result.get("ref_result"))
    titles = {CANDIDATE: CANDIDATE if compared else "kernel", REFERENCE: REFERENCE}
    found = []
    for side, key in ((CANDIDATE, "kernel_exec_result"), (REFERENCE, "ref_result")):
        one = result.get(key) or {}
        made = one.get("build") or {}
        told = [entry for entry in entries(dict(result)) if entry.side == side and entry.is_text]
        named = str(made.get("kernel") or (one.get("metadata") or {}).get("kernel_name") or "its kernel")
        lacking = [(_of(entry), str(entry.data.get("unavailable"))) for entry in told if entry.name is None]
        code = Code(side, titles[side], _rows(made, named), [entry for entry in told if entry.name], lacking)
        if code.rows or told:
            found.append(code)
    return found


def _of(entry: Entry) -> str:
    return " of ".join(str(part) for part in (entry.data["form"], entry.data.get("kernel")) if part)


def _rows(made: Made, named: str) -> list[Row]:
    """Of one kernel that was built alone, or of each of several."""
    several = [each for key in ("variants", "kernels") for each in objects(made.get(key))]
    if not several:
        return [_row(made, named)] if made.get("registers") is not None else []
    return [_row(each, _name(each, number)) for number, each in enumerate(several[:SHOWN], 1)]


def _name(code: Made, number: int) -> str:
    chosen = ", ".join(f"{key}={code[key]}" for key in ("num_warps", "num_stages") if code.get(key) is not None)
    return str(code.get("name") or f"Variant {number}") + (f": {chosen}" if chosen else "")


def _row(code: Made, name: str) -> Row:
    found = code.get("occupancy")
    # The share of a multiprocessor's warps, or a mapping that has it with what keeps out more.
    held = found if isinstance(found, Mapping) else {"theoretical": found, "limited_by": code.get("limited_by")}
    shared = held.get("shared_bytes", code.get("shared_bytes", code.get("static_shared_bytes")))
    return Row(
        name,
        words.count(code.get("registers")),
        words.size(code.get("local_bytes")),
        _spills(code),
        words.size(shared),
        words.share(held.get("theoretical")),
        words.name(held.get("limited_by") or words.NONE),
    )


def _spills(code: Made) -> str:
    stored, loaded = code.get("spill_store_bytes"), code.get("spill_load_bytes")
    if stored is None and loaded is None:
        return words.NONE
    return f"{words.size(stored)}, {words.size(loaded)} read back" if stored or loaded else "none"
