"""Finds names in a body that no field reads. The original's contract allows them, so they are reported, not
rejected."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import Any

from marshmallow import Schema, fields

from api.schemas.fields import FreeObject
from api.schemas.launch import AXES, LaunchSchema
from api.schemas.suggestions import similar_name

_MAX_NAMES, _MAX_NAME_CHARS = 16, 60

Path = tuple[str | int, ...]


def unknown_names(
    body: dict[str, Any], read: Collection[str], parts: Schema | None = None, *, suggest: bool = True
) -> list[str]:
    """The first names in the body that are not in `read`, then those in the objects below it, with `parts`.

    Each comes with its path, as in errors, and with `suggest` also with the most similar field. A suggestion costs half
    a millisecond a name.
    """
    own = ((body, read, ()),)
    objects = chain(own, _below(body, parts)) if parts is not None else own
    return list(islice(chain.from_iterable(_named(*entry, suggest) for entry in objects), _MAX_NAMES))


ScannedObject = tuple[dict[str, Any], Collection[str], Path]
"""An object, the names that are read from it, and its path."""


def _below(body: dict[str, Any], schema: Schema, path: Path = ()) -> Iterator[ScannedObject]:
    for name, field in schema.fields.items():
        value = body.get(name)
        if isinstance(field, fields.Nested) and isinstance(value, dict):
            yield from _within(value, field.schema, (*path, name))
        elif isinstance(field, fields.List) and isinstance(field.inner, fields.Nested) and isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _within(item, field.inner.schema, (*path, name, index))
        elif isinstance(field, FreeObject) and isinstance(value, dict):
            yield value, field.read, (*path, name)
        elif isinstance(schema, LaunchSchema) and isinstance(value, dict):  # A grid or a block.
            yield value, AXES, (*path, name)


def _within(value: dict[str, Any], schema: Schema, path: Path) -> Iterator[ScannedObject]:
    yield value, schema.fields, path
    yield from _below(value, schema, path)


def _named(body: dict[str, Any], read: Collection[str], path: Path, suggest: bool) -> Iterator[str]:
    for name in islice((name for name in body if name not in read), _MAX_NAMES):
        free = [field for field in read if field not in body]
        near = similar_name(name, free) if suggest else None
        path_text = " -> ".join(map(str, (*path, name[:_MAX_NAME_CHARS])))
        yield f"{path_text} (did you mean {near}?)" if near else path_text
