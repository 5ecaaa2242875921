"""Members of an answer that a submission's processes had a hand in, at the form that is wanted, else nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Told = Mapping[str, Any]


def obj(value: Any) -> Told:
    """An object."""
    return value if isinstance(value, Mapping) else {}


def objects(value: Any) -> list[Told]:
    """The objects of a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def members(value: Any) -> dict[str, Told]:
    """The members of an object that are objects themselves."""
    return {str(name): each for name, each in obj(value).items() if isinstance(each, Mapping)}
