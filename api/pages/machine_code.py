"""A side's compiled code: the resources of each kernel, and where its texts are available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.typed_members import objects_in_list
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.artifact_store import Entry, entries

BuildFacts = Mapping[str, Any]
Result = Mapping[str, Any]
MAX_ROWS = 12
"""Maximum kernels of one build on the page."""


@dataclass(frozen=True)
class ResourceRow:
    """One kernel, or one configuration of it, in words; unknown figures are "–"."""

    name: str
    registers: str
    local: str
    spills: str
    shared: str
    occupancy: str
    limited_by: str


@dataclass(frozen=True)
class SideCode:
    """One side's rows, its texts, and the forms that are unavailable (pairs of the form and the reason)."""

    side: str
    title: str
    rows: list[ResourceRow]
    texts: list[Entry]
    unavailable: list[tuple[str, str]]


def codes(result: Result) -> list[SideCode]:
    compared = bool(result.get("ref_result"))
    titles = {CANDIDATE: CANDIDATE if compared else "kernel", REFERENCE: REFERENCE}
    sides = []
    for side, key in ((CANDIDATE, "kernel_exec_result"), (REFERENCE, "ref_result")):
        outcome = result.get(key) or {}
        build = outcome.get("build") or {}
        listed = [entry for entry in entries(dict(result)) if entry.side == side and entry.is_text]
        named = str(build.get("kernel") or (outcome.get("metadata") or {}).get("kernel_name") or "its kernel")
        unavailable = [(_of(entry), str(entry.data.get("unavailable"))) for entry in listed if entry.name is None]
        code = SideCode(side, titles[side], _rows(build, named), [entry for entry in listed if entry.name], unavailable)
        if code.rows or listed:
            sides.append(code)
    return sides


def _of(entry: Entry) -> str:
    return " of ".join(str(part) for part in (entry.data["format"], entry.data.get("kernel")) if part)


def _rows(build: BuildFacts, named: str) -> list[ResourceRow]:
    """A row for the only kernel, or for each of several."""
    several = [each for key in ("variants", "kernels") for each in objects_in_list(build.get(key))]
    if not several:
        return [_row(build, named)] if build.get("registers") is not None else []
    return [_row(each, _name(each, number)) for number, each in enumerate(several[:MAX_ROWS], 1)]


def _name(code: BuildFacts, number: int) -> str:
    chosen = ", ".join(f"{key}={code[key]}" for key in ("num_warps", "num_stages") if code.get(key) is not None)
    return str(code.get("name") or f"Variant {number}") + (f": {chosen}" if chosen else "")


def _row(code: BuildFacts, name: str) -> ResourceRow:
    occupancy = code.get("occupancy")
    # A share of a multiprocessor's warps, or a mapping with that share and the limiting resource.
    held = (
        occupancy
        if isinstance(occupancy, Mapping)
        else {"theoretical": occupancy, "limited_by": code.get("limited_by")}
    )
    shared = held.get("shared_bytes", code.get("shared_bytes", code.get("static_shared_bytes")))
    return ResourceRow(
        name,
        words.count(code.get("registers")),
        words.size(code.get("local_bytes")),
        _spills(code),
        words.size(shared),
        words.share(held.get("theoretical")),
        words.name(held.get("limited_by") or words.NONE),
    )


def _spills(code: BuildFacts) -> str:
    stored, loaded = code.get("spill_store_bytes"), code.get("spill_load_bytes")
    if stored is None and loaded is None:
        return words.NONE
    return f"{words.size(stored)}, {words.size(loaded)} read back" if stored or loaded else "none"
