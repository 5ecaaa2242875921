"""Members of an answer that may have any form: what is there at the type that is wanted, else nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(value: Any) -> float | None:
    """The value as a finite float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def whole(value: Any) -> int | None:
    """The value if it is an integer; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """The value if it is a string; else None."""
    return value if isinstance(value, str) else None


def member(value: Any, *names: str) -> Any:
    """`value[first][second]…`; None if a member is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def objects_in_list(value: Any) -> list[Mapping[str, Any]]:
    """The JSON objects in a list; [] for anything but a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
