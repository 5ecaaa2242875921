"""Constructor arguments on their way from a reference to a candidate whose source gives none."""

from __future__ import annotations

from typing import Any

import torch

from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.value import MAX_DEPTH, CodecError, DtypeName, Stranger, Value


def told(init: list[Any] | None) -> Any:
    """Their wire form: a dtype by its name, and in place of what does not cross a word for it."""
    return values.encode(_crossing(init, MAX_DEPTH))


def taken(init: Value) -> list[Any] | None:
    """As they are given to a constructor. ValueError for what is no list of arguments."""
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
    return Stranger(f"{type(value).__name__} {name}" if isinstance(name, str) else type(value).__name__)
