"""Wire form of constructor arguments: from the reference to a candidate whose source gives none."""

from __future__ import annotations

from typing import Any

import torch

from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.value import MAX_DEPTH, CodecError, DtypeName, Unserializable, Value


def to_wire(init: list[Any] | None) -> Any:
    """The wire form of constructor arguments: a dtype by its name; Unserializable for anything that does not cross."""
    return values.encode(_crossing(init, MAX_DEPTH))


def from_wire(init: Value) -> list[Any] | None:
    """The arguments for the constructor. Raises ValueError if the value is no list."""
    if init is not None and not isinstance(init, list):
        raise ValueError("init is a list of constructor arguments")
    return values.replace(init, DtypeName, lambda dtype: getattr(torch, dtype.name))  # type: ignore[no-any-return]


def _crossing(value: Any, depth: int) -> Any:
    if isinstance(value, torch.dtype) and (dtype := str(value).removeprefix("torch.")) in ITEM_BYTES:
        return DtypeName(dtype)
    if type(value) in (tuple, list) and depth:
        return type(value)(_crossing(item, depth - 1) for item in value)
    if type(value) is dict and depth and all(isinstance(key, str) for key in value):
        return {key: _crossing(item, depth - 1) for key, item in value.items()}
    try:
        if not isinstance(value, (tuple, list, dict)):
            values.encode(value)
            return value
    except CodecError:
        pass
    name = getattr(value, "__name__", None)
    return Unserializable(f"{type(value).__name__} {name}" if isinstance(name, str) else type(value).__name__)
