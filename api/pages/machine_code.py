"""What a build's machine code needs, as pairs of a name and a value: registers, spills, shared memory, occupancy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.pages import words

Made = Mapping[str, Any]
SHOWN = 12
"""Kernels of one build."""


def needs(made: Made) -> list[tuple[str, str]]:
    """Of one kernel that was built alone, or of each of several."""
    several = [each for key in ("variants", "kernels") for each in made.get(key) or () if isinstance(each, Mapping)]
    if several:
        return [
            (str(each.get("name") or f"Variant {number}"), _line(each))
            for number, each in enumerate(several[:SHOWN], 1)
        ]
    line = _line(made)
    return [("Machine code", line)] if line else []


def _line(code: Made) -> str:
    told = [
        words.counted(code["registers"], "register") + " a thread" if code.get("registers") is not None else "",
        _spills(code),
        f"{words.size(shared)} shared memory a block" if (shared := _shared(code)) is not None else "",
        _occupancy(code),
    ]
    return ", ".join(part for part in told if part)


def _spills(code: Made) -> str:
    stored, loaded = code.get("spill_store_bytes"), code.get("spill_load_bytes")
    if stored is None and loaded is None:
        local = code.get("local_bytes")
        return f"{local} B of stack and spills" if local else ""
    return f"{stored or 0} B spilled and {loaded or 0} B read back" if stored or loaded else "no spills"


def _shared(code: Made) -> Any:
    return next((code[key] for key in ("shared_bytes", "static_shared_bytes") if code.get(key) is not None), None)


def _occupancy(code: Made) -> str:
    """`occupancy` is the share of a multiprocessor's warps, or a mapping that has it with what keeps out more."""
    found = code.get("occupancy")
    held = found if isinstance(found, Mapping) else {"theoretical": found, "limited_by": code.get("limited_by")}
    if not isinstance(held.get("theoretical"), int | float):
        return ""
    limit = f" (limited by {words.name(held['limited_by'])})" if held.get("limited_by") else ""
    return f"theoretical occupancy {words.share(held['theoretical'])}{limit}"
