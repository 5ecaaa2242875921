"""Members of an answer that may have any form: what is there at the type that is wanted, else nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(value: Any) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """An integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """A string."""
    return value if isinstance(value, str) else None


def member(value: Any, *names: str) -> Any:
    """`value[first][second]…`; None where that is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
