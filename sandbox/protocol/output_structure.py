"""The structure of a kernel's nested output: where its tensors are, and under which names.

The referee uses the names to match the candidate's outputs with the reference's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from domain.value import MAX_DEPTH, MAX_NODES
from sandbox.protocol.outputs import Keys

MAX_NAME = 128
NOTHING, TENSOR = 0, 1
"""Wire forms of a part without output, and of a tensor or number. A list's is the list of its members' forms."""
KEYS, FIELDS, MEMBERS = "keys", "fields", "members"
"""Keys of a wire form: a mapping has `keys`, a dataclass has `fields`, and both have their members' forms."""


@dataclass(frozen=True)
class OutputStructure:
    """The structure of one tensor, or of a part of the output with `members`, each of which has at least one tensor.

    `tensors` is the number of tensors in it. `names` are the members' names, if they have any: the keys of a mapping
    (`keyed`) or the fields of a dataclass.
    """

    tensors: int = 1
    members: tuple[OutputStructure, ...] = ()
    names: tuple[str, ...] = ()
    keyed: bool = False


def to_wire(result: Any, keys: list[Keys]) -> Any:
    """The wire form of an output that `tensors_of` accepts. Appends the keys of its mappings to `keys`, depth first.

    Parts without output are omitted. A list or tuple with one part becomes that part. A mapping with a key that has no
    process-independent name becomes a list, and None is appended in place of its keys.
    """
    match result:
        case torch.Tensor() | numpy.ndarray() | numpy.generic():
            return TENSOR
        case None | str() | bytes():
            return NOTHING
        case tuple() | list():
            return _list(to_wire(item, keys) for item in result)
        case Mapping():
            names = list(map(_key_text, result))
            keys.append(tuple(result) if None not in names else None)
            return _named(
                KEYS, [(name, to_wire(item, keys)) for name, item in zip(names, result.values(), strict=True)]
            )
    if dataclasses.is_dataclass(result):
        fields = [field.name for field in dataclasses.fields(result)]
        return _named(FIELDS, [(repr(name), to_wire(getattr(result, name), keys)) for name in fields])
    return TENSOR


def parse(wire_form: Any, tensors: int) -> OutputStructure | None:
    """Parses the wire form that an untrusted process sent for `tensors` tensors; None if it is malformed."""
    try:
        form = _parsed(wire_form, MAX_DEPTH, [MAX_NODES])
    except ValueError:
        return None
    return form if form.tensors == tensors else None


def _list(forms: Iterable[Any]) -> Any:
    non_empty = [form for form in forms if form != NOTHING]
    return non_empty if len(non_empty) > 1 else non_empty[0] if non_empty else NOTHING


def _named(kind: str, members: list[tuple[str | None, Any]]) -> Any:
    non_empty = [(name, form) for name, form in members if form != NOTHING]
    names, forms = [name for name, _ in non_empty], [form for _, form in non_empty]
    if not non_empty or None in names or len(set(names)) < len(names):
        return _list(forms)
    return {kind: names, MEMBERS: forms}


def _key_text(key: Any) -> str | None:
    """A text that equal keys share in every process; None if the key is of another type, or too long."""
    match key:
        case numpy.generic():
            return _key_text(key.item()) if not isinstance(key.item(), numpy.generic) else None
        case str():
            name = str.__repr__(key)
        case bool() | int() if -(2**63) <= key < 2**63:
            name = str(int(key))
        case float():
            name = str(int(key)) if key.is_integer() and abs(key) < 2**63 else float.__repr__(key)
        case None:
            name = "None"
        case tuple():
            names = [_key_text(item) for item in key]
            if None in names:
                return None
            name = f"({', '.join(map(str, names))})"
        case _:
            return None
    return name if len(name) <= MAX_NAME else None


def _parsed(wire_form: Any, depth: int, budget: list[int]) -> OutputStructure:
    budget[0] -= 1
    if depth < 0 or budget[0] < 0:
        raise ValueError("too deep or too large")
    match wire_form:
        case int() if type(wire_form) is int and wire_form == TENSOR:
            return OutputStructure()
        case list() if wire_form:
            return _structure([_parsed(item, depth - 1, budget) for item in wire_form])
        case {"keys": list(names), "members": list(forms)} | {"fields": list(names), "members": list(forms)}:
            if names and len(names) == len(forms) and all(map(_is_name, names)) and len(set(names)) == len(names):
                return _structure(
                    [_parsed(item, depth - 1, budget) for item in forms], tuple(names), keyed=KEYS in wire_form
                )
    raise ValueError("no form")


def _structure(members: list[OutputStructure], names: tuple[str, ...] = (), *, keyed: bool = False) -> OutputStructure:
    return OutputStructure(sum(member.tensors for member in members), tuple(members), names, keyed)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
