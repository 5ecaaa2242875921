"""Reads members of a result that a submission's processes influenced: a value of the wrong type counts as missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]


def object_or_empty(value: Any) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def objects_in_list(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def members(value: Any) -> dict[str, JsonObject]:
    """The members of an object that are objects themselves."""
    return {str(name): item for name, item in object_or_empty(value).items() if isinstance(item, Mapping)}
