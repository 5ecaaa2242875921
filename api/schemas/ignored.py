"""The names in a body that nothing reads: the original's contract lets them in, so they are told and not refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any

from marshmallow import Schema, fields

from api.schemas.launch import AXES, LaunchSchema

_SHOWN_NAMES, _SHOWN_CHARS = 16, 60
_ALIKE = 0.75
"""Of two names, by difflib's measure: `num_trails` and `num_trials` have 0.9."""

Path = tuple[str | int, ...]


def strange(
    body: dict[str, Any], read: Collection[str], parts: Schema | None = None, *, alike: bool = True
) -> list[str]:
    """The first of those that are not among `read`, then those in the objects below, with `parts`.

    Each with the way there, as errors name it, and where it is to be `alike` with the field that it looks like. To look
    for that takes half a millisecond a name.
    """
    own = ((body, read, ()),)
    places = chain(own, _below(body, parts)) if parts is not None else own
    return list(islice(chain.from_iterable(_named(*place, alike) for place in places), _SHOWN_NAMES))


Place = tuple[dict[str, Any], Collection[str], Path]
"""An object, the names that are read of it, and the way there."""


def _below(body: dict[str, Any], schema: Schema, path: Path = ()) -> Iterator[Place]:
    for name, field in schema.fields.items():
        value = body.get(name)
        if isinstance(field, fields.Nested) and isinstance(value, dict):
            yield from _within(value, field.schema, (*path, name))
        elif isinstance(field, fields.List) and isinstance(field.inner, fields.Nested) and isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _within(item, field.inner.schema, (*path, name, index))
        elif isinstance(schema, LaunchSchema) and isinstance(value, dict):  # A grid or a block.
            yield value, AXES, (*path, name)


def _within(value: dict[str, Any], schema: Schema, path: Path) -> Iterator[Place]:
    yield value, schema.fields, path
    yield from _below(value, schema, path)


def _named(body: dict[str, Any], read: Collection[str], path: Path, alike: bool) -> Iterator[str]:
    for name in islice((name for name in body if name not in read), _SHOWN_NAMES):
        free = [each for each in read if each not in body]
        near = get_close_matches(name, free, 1, _ALIKE) if alike and len(name) <= _SHOWN_CHARS else []
        shown = " -> ".join(map(str, (*path, name[:_SHOWN_CHARS])))
        yield f"{shown} (did you mean {near[0]}?)" if near else shown
