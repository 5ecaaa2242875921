"""The JSON form of the data classes of a request, by the names and types of their fields."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Self, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]


class Wire:
    """A base of data classes: `cls.from_wire(x.to_wire()) == x`."""

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        """Reads the known members; one that is absent or null has its default.

        Raises KeyError, TypeError or ValueError for an object that `to_wire` did not write.
        """
        readers = _readers(cls).items()
        return cls(**{name: read(wire[name]) for name, read in readers if wire.get(name) is not None})

    def to_wire(self) -> dict[str, Any]:
        """An object of JSON, without members that are None."""
        members = ((name, getattr(self, name)) for name in _readers(type(self)))
        return {name: _written(value) for name, value in members if value is not None}


_KNOWN: dict[type, dict[str, Reader]] = {}


def _readers(kind: type) -> dict[str, Reader]:
    """The reader of each field of a data class; made once, because looking types up takes long."""
    if kind not in _KNOWN:
        _KNOWN[kind] = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
    return _KNOWN[kind]


def _reader(hint: Any) -> Reader:
    options = [option for option in get_args(hint) if option is not type(None)]
    if get_origin(hint) is tuple:
        item = _reader(options[0])
        return lambda value: tuple(map(item, value))
    if get_origin(hint) is dict:
        member = _reader(options[1])
        return lambda value: {key: member(each) for key, each in value.items()}
    if len(options) == 1:  # The type of a member that may be None.
        return _reader(options[0])
    if isinstance(hint, type) and issubclass(hint, Wire):
        return hint.from_wire
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else lambda value: value


def _written(value: Any) -> Any:
    if isinstance(value, Wire):
        return value.to_wire()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return {key: _written(item) for key, item in value.items()} if isinstance(value, dict) else value
