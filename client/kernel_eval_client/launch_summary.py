"""The launches of a profiled call in one line, from a result's `launches`, which the submission's process reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAXIMUM_NAMES = 3


def in_a_line(launches: Mapping[str, Any] | None) -> str | None:
    """The number of launches and the shares of the longest, or why it is unknown; None without a profile."""
    if not launches:
        return None
    kernels = launches.get("kernels")
    if not isinstance(kernels, list):
        return f"not known: {launches.get('reason')}"
    named = [
        f"{each['share']:.0%} {each['name']} ({each.get('origin')})"
        for each in kernels[:MAXIMUM_NAMES]
        if isinstance(each, Mapping) and isinstance(each.get("share"), (int, float)) and "name" in each
    ]
    more = len(kernels) - len(named) + int(launches.get("kernels_omitted") or 0)
    count = launches.get("launches")
    prefix = f"{count:g} a call" if isinstance(count, (int, float)) else "of a call"
    return f"{prefix}: {', '.join(named) or 'nothing'}" + (f", and {more} more" if more > 0 else "")
