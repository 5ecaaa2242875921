"""A side's compiled code: the resources of each kernel, and where its texts are available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.typed_members import objects_in_list
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.artifact_store import Entry, entries

BuildFacts = Mapping[str, Any]
Result = Mapping[str, Any]
MAX_ROWS = 12
"""Maximum kernels of one build on the page."""


@dataclass(frozen=True)
class SideCode:
    """One side's kernels with their names, its texts, and the forms that are unavailable (pairs of the form and the
    reason)."""

    side: str
    title: str
    rows: list[tuple[str, BuildFacts]]
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


def _rows(build: BuildFacts, named: str) -> list[tuple[str, BuildFacts]]:
    """A row for the only kernel, or for each of several."""
    several = [each for key in ("variants", "kernels") for each in objects_in_list(build.get(key))]
    if not several:
        return [(named, build)] if build.get("registers") is not None else []
    return [(_name(each, number), each) for number, each in enumerate(several[:MAX_ROWS], 1)]


def _name(code: BuildFacts, number: int) -> str:
    chosen = ", ".join(f"{key}={code[key]}" for key in ("num_warps", "num_stages") if code.get(key) is not None)
    return str(code.get("name") or f"Variant {number}") + (f": {chosen}" if chosen else "")
