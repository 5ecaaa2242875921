"""Parses JSON under limits that are checked first, in time and memory proportional to its length.

Every step processes each byte, or each value, a fixed number of times, so a body's cost follows from its size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

MAX_DEPTH = 64
MAX_VALUES = 1_000_000
"""Maximum values in one body: a parsed value takes some 60 bytes, so a 64 MiB body of `[[],[],…` would take
gigabytes."""
_VALUE_BYTES = 128
"""Bytes that a parsed member of an object takes, its key included."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]|\\u(?!00[0-7])")
"""A character that makes its whole string take more than a byte a character once it is parsed."""
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]")
_TOO_MANY = f"the body holds more than {MAX_VALUES} values; send tensors inline as data_b64"
_TOO_DEEP = f"the body is nested more than {MAX_DEPTH} levels deep; send a flatter one"
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""First bytes of gzip and of Zstandard, which are not UTF-8."""
_CONTROL = "Invalid control character"

Path = tuple[str | int, ...]


class BodyError(ValueError):
    """The body is not an acceptable JSON object; `path` leads to the value at fault."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.path = path


def cost(raw: bytes | bytearray) -> int:
    """Peak memory of parsing, in bytes: `raw` itself, its text and its values.

    Text takes one, two or four bytes for each character, as the widest one needs; each value has its own overhead.
    """
    if b"\\u" in raw and _BEYOND_ASCII.search(raw):
        width = 4
    else:
        width = 1 if raw.isascii() else 4 if _FOUR_BYTES.search(raw) else 2
    return len(raw) * (1 + 2 * width) + min(_values_in(raw), MAX_VALUES) * _VALUE_BYTES


def parse(raw: bytes | bytearray) -> dict[str, Any]:
    """The JSON object in `raw`; raises BodyError saying what is wrong and where."""
    _bound(raw)
    value, wrong = _values(raw)
    if wrong is not None:
        raise BodyError(wrong)
    if not isinstance(value, dict):
        several = ', or several requests to /batch as {"jobs": […]}' if isinstance(value, list) else ""
        raise BodyError(f"the body is a JSON {_NAMES[type(value)]}; send a JSON object{several}")
    _check_members(value)
    return value


def _values(raw: bytes | bytearray) -> tuple[Any, str | None]:
    """Parses, and returns the value or a message: an exception's context would hold the whole text."""
    try:
        # utf-8-sig: some clients write a byte order mark, and no JSON starts with one.
        text = raw.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object), None
    except UnicodeDecodeError as error:
        if raw.startswith(_COMPRESSED):
            return None, "the body is compressed, which the service does not take; send the JSON itself"
        return None, f"the body is not UTF-8: {error.reason} at byte {error.start}; encode it so"
    except json.JSONDecodeError as error:
        return None, _not_json(error)
    except RecursionError:
        return None, _TOO_DEEP
    except BodyError as error:
        return None, str(error)
    except ValueError:
        return None, "the body holds an integer of more than 4300 digits"


def _not_json(error: json.JSONDecodeError) -> str:
    what = error.msg.removesuffix(" at")
    raw = "; a line break or a tab inside a string: write \\n or \\t there" if what == _CONTROL else ""
    maker = ", or make the body with jq or json.dumps" if raw else "; make the body with jq or json.dumps"
    return f"the body is not JSON: {what} at line {error.lineno}, column {error.colno}{raw}{maker}"


class _Repeated(dict[str, Any]):
    """An object with a repeated key, whose intended value is unknown."""

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, marked if a key repeats; it is rejected once the path to it is known."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    repeated = _Repeated(value)
    # The object has its keys in the order in which they came first: the first that is out of it came before.
    repeated.key = next(
        (key for (key, _), first in zip(pairs, value, strict=False) if key != first), pairs[len(value)][0]
    )
    return repeated


_NAMES: dict[type, str] = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
}


def _refuse_constant(name: str) -> NoReturn:
    raise BodyError(f"the body holds {name}, which is not JSON; write a number or null")


def _bound(raw: bytes | bytearray) -> None:
    """The number of values, from the bytes alone: before the parser's memory is at risk."""
    if not raw or raw.isspace():
        raise BodyError("the body is empty; send a JSON object")
    # Counted in texts too, so this is more than there are; most bodies need no closer look.
    if _values_in(raw) <= MAX_VALUES:
        return
    # At most two strings a value, of two quotes each; some of those behind a backslash are not counted.
    if raw.count(b'"') - raw.count(b'\\"') > 4 * MAX_VALUES:
        raise BodyError(_TOO_MANY)
    if _values_in(_STRING.sub(b"", raw)) > MAX_VALUES:
        raise BodyError(_TOO_MANY)


def _values_in(structure: bytes | bytearray) -> int:
    return sum(structure.count(mark) for mark in (b",", b"[", b"{"))


def _check_members(body: dict[str, Any]) -> None:
    """Refuses too many levels, keys that come again, texts that cannot be stored (lone surrogates, NUL), and numbers
    that JSON cannot write back (1e999).

    Level by level, with one path for all: a path for each value would be the larger part of the body's memory.
    """
    _check_keys(body, ())
    path: list[str | int] = []
    levels: list[Iterator[tuple[str | int, Any]]] = [iter(body.items())]
    while levels:
        if len(levels) > MAX_DEPTH:
            raise BodyError(_TOO_DEEP)
        step, value = next(levels[-1], (None, None))
        if step is None:
            levels.pop()
            if path:
                path.pop()
            continue
        match value:
            case dict():
                path.append(step)
                _check_keys(value, path)
                levels.append(iter(value.items()))
            case list():
                path.append(step)
                levels.append(enumerate(value))
            case str():
                _check_text(value, (*path, step))
            case float() if not math.isfinite(value):
                raise BodyError("the number is too large for a double", (*path, step))


def _check_keys(value: dict[str, Any], path: list[str | int] | Path) -> None:
    if isinstance(value, _Repeated):
        raise BodyError("is given more than once in this object; keep one", (*path, value.key))
    for key in value:
        _check_text(key, path)


def _check_text(text: str, path: list[str | int] | Path) -> None:
    if "\0" in text:
        raise BodyError("the text holds a NUL character; take it out", tuple(path))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            line, column = text.count("\n", 0, error.start) + 1, error.start - text.rfind("\n", 0, error.start)
            where = f"{ascii(text[error.start])[1:-1]} at line {line}, column {column}"
            raise BodyError(f"the text holds a lone surrogate, {where}; replace it", tuple(path)) from None
