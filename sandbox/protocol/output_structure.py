"""The form of a nested answer: where its tensors stand, and under which names, so that two can be matched by them."""

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
"""The wire forms of what carries no answer, and of a tensor or a number. That of a list is one of its members'."""
KEYS, FIELDS, MEMBERS = "keys", "fields", "members"
"""The wire form of a mapping has its keys, a dataclass's its fields; beside them the members' forms."""


@dataclass(frozen=True)
class AnswerForm:
    """Of a tensor; or of a part of an answer with `members`, which have at least one tensor each.

    `names` are the members', where they have any: a mapping's keys (`keyed`) or a dataclass's fields.
    """

    tensors: int = 1
    members: tuple[AnswerForm, ...] = ()
    names: tuple[str, ...] = ()
    keyed: bool = False


def wire(result: Any, keys: list[Keys]) -> Any:
    """Of an answer that could be flattened. The keys of its mappings are added to `keys`, depth first.

    Without what carries no answer; one thing alone in a list or a tuple is that thing. A mapping of which a key has no
    name that another process would know, as an object has none, is told as a list, and None in place of its keys.
    """
    match result:
        case torch.Tensor() | numpy.ndarray() | numpy.generic():
            return TENSOR
        case None | str() | bytes():
            return NOTHING
        case tuple() | list():
            return _list(wire(item, keys) for item in result)
        case Mapping():
            names = list(map(_name, result))
            keys.append(tuple(result) if None not in names else None)
            return _named(KEYS, [(name, wire(item, keys)) for name, item in zip(names, result.values(), strict=True)])
    if dataclasses.is_dataclass(result):
        fields = [field.name for field in dataclasses.fields(result)]
        return _named(FIELDS, [(repr(name), wire(getattr(result, name), keys)) for name in fields])
    return TENSOR


def parsed(told: Any, tensors: int) -> AnswerForm | None:
    """The form of so many tensors as an untrusted process tells it; None for anything but what `wire` writes."""
    try:
        form = _parsed(told, MAX_DEPTH, [MAX_NODES])
    except ValueError:
        return None
    return form if form.tensors == tensors else None


def _list(forms: Iterable[Any]) -> Any:
    kept = [form for form in forms if form != NOTHING]
    return kept if len(kept) > 1 else kept[0] if kept else NOTHING


def _named(kind: str, members: list[tuple[str | None, Any]]) -> Any:
    kept = [(name, form) for name, form in members if form != NOTHING]
    names, forms = [name for name, _ in kept], [form for _, form in kept]
    if not kept or None in names or len(set(names)) < len(names):
        return _list(forms)
    return {kind: names, MEMBERS: forms}


def _name(key: Any) -> str | None:
    """The same text for equal keys, in every process; None for a key of another kind, or a long one."""
    match key:
        case numpy.generic():
            return _name(key.item()) if not isinstance(key.item(), numpy.generic) else None
        case str():
            name = str.__repr__(key)
        case bool() | int() if -(2**63) <= key < 2**63:
            name = str(int(key))
        case float():
            name = str(int(key)) if key.is_integer() and abs(key) < 2**63 else float.__repr__(key)
        case None:
            name = "None"
        case tuple():
            names = [_name(each) for each in key]
            if None in names:
                return None
            name = f"({', '.join(map(str, names))})"
        case _:
            return None
    return name if len(name) <= MAX_NAME else None


def _parsed(told: Any, depth: int, budget: list[int]) -> AnswerForm:
    budget[0] -= 1
    if depth < 0 or budget[0] < 0:
        raise ValueError("too deep or too large")
    match told:
        case int() if type(told) is int and told == TENSOR:
            return AnswerForm()
        case list() if told:
            return _of([_parsed(each, depth - 1, budget) for each in told])
        case {"keys": list(names), "members": list(forms)} | {"fields": list(names), "members": list(forms)}:
            if names and len(names) == len(forms) and all(map(_is_name, names)) and len(set(names)) == len(names):
                return _of([_parsed(each, depth - 1, budget) for each in forms], tuple(names), keyed=KEYS in told)
    raise ValueError("no form")


def _of(members: list[AnswerForm], names: tuple[str, ...] = (), *, keyed: bool = False) -> AnswerForm:
    return AnswerForm(sum(member.tensors for member in members), tuple(members), names, keyed)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
