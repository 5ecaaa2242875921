"""Wire form of the arguments that a candidate borrows of its reference, with the names of parameters."""

from __future__ import annotations

from typing import Any

import torch

from backends.base import NO_REFERENCE, ReferenceArguments
from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.value import MAX_DEPTH, CodecError, DtypeName, Unserializable, Value


def to_wire(borrowed: ReferenceArguments) -> Any:
    """The wire form: a dtype by its name; Unserializable for any constructor argument that does not cross."""
    return values.encode({**vars(borrowed), "init": _crossing(borrowed.init, MAX_DEPTH - 2)})


def from_wire(borrowed: Value) -> ReferenceArguments:
    """The arguments for a candidate; none for anything but what `to_wire` makes."""
    match borrowed:
        case {"init": None | list() as init, "init_names": list() as init_names, "input_names": list() as input_names}:
            names = [[name for name in each if isinstance(name, str)] for each in (init_names, input_names)]
            made = values.replace(init, DtypeName, lambda dtype: getattr(torch, dtype.name))
            return ReferenceArguments(made, *names)
    return NO_REFERENCE


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
