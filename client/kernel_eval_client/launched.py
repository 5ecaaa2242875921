"""What a profiled call launches, in a line; out of a result's `launches`, the submission's own word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 3


def in_a_line(launches: Mapping[str, Any] | None) -> str | None:
    """How many, and the shares of the longest; why it is not known; None where it was not asked for."""
    if not launches:
        return None
    kernels = launches.get("kernels")
    if not isinstance(kernels, list):
        return f"not known: {launches.get('reason')}"
    named = [
        f"{each['share']:.0%} {each['name']} ({each.get('library') or each.get('origin')})"
        for each in kernels[:SHOWN]
        if isinstance(each, Mapping) and isinstance(each.get("share"), (int, float)) and "name" in each
    ]
    more = len(kernels) - len(named) + int(launches.get("kernels_omitted") or 0)
    count = launches.get("launches")
    told = f"{count:g} a call" if isinstance(count, (int, float)) else "of a call"
    return f"{told}: {', '.join(named) or 'nothing'}" + (f", and {more} more" if more > 0 else "")
