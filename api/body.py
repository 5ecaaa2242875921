"""A request's body: bounded before it is parsed, strict JSON, and every text in it storable as UTF-8."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from socket import socket
from typing import Any, NoReturn

from flask import Request
from gunicorn.http.errors import ParseException
from marshmallow import Schema
from werkzeug.exceptions import ClientDisconnected

MAX_DEPTH = 64
MAX_VALUES = 1_000_000
"""Values in one body: a parsed value costs some 60 bytes, so a 64 MiB body of `[[],[],…` would take gigabytes."""

BODY_TIMEOUT_S = 30.0
"""A body of which nothing comes for so long is given up: one that is never sent whole would hold a thread for ever."""

_PIECE = 1 << 20
_READ = "kernel_eval.body_read"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SHOWN_CHARS = 200
_CONTROL = "Invalid control character"
_TEXT_TYPES = ("", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream")

Path = tuple[str | int, ...]


class BodyError(ValueError):
    """The body is no JSON object that we take; `path` leads to the value at fault."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.path = path


class BodyLate(Exception):
    """The rest of the body did not come."""


class MediaTypeError(BodyError):
    """The body is no JSON, and does not claim to be."""


def load(request: Request, schema: Schema) -> dict[str, Any]:
    """The body of the request: a webargs location loader, which leaves validating to the view.

    The declared content type is not asked for when the body is JSON all the same: curl declares a form.
    """
    raw = _read(request)
    try:
        return parse(raw)
    except BodyError as error:
        if not error.path and request.mimetype not in _TEXT_TYPES and not request.is_json:
            raise MediaTypeError(
                f"the body is {request.mimetype[:100]}; send a JSON object with Content-Type: application/json"
            ) from error
        raise


def _read(request: Request) -> bytes:
    """The whole body; RequestEntityTooLarge beyond the app's MAX_CONTENT_LENGTH, BodyLate, BodyError for no chunks.

    Piece by piece, because `get_data` cuts a chunked body off at the cap without a word.
    """
    pieces = []
    try:
        with _patience(request.environ.get("gunicorn.socket")):
            while piece := request.stream.read(_PIECE):
                pieces.append(piece)
    except ParseException as error:
        raise BodyError(f"the body is not chunked as HTTP/1.1 has it: {error}"[:_SHOWN_CHARS]) from error
    except ClientDisconnected as error:
        if not isinstance(error.__context__, TimeoutError):
            raise
        told = f"of the rest of the body nothing came for {BODY_TIMEOUT_S:g} s; send all that Content-Length announces"
        raise BodyLate(told) from error
    request.environ[_READ] = True
    return b"".join(pieces)


@contextmanager
def _patience(connection: socket | None) -> Iterator[None]:
    """Inside, reading from the client ends with TimeoutError; without Gunicorn there is no connection."""
    if connection is None:
        yield
        return
    before = connection.gettimeout()
    connection.settimeout(BODY_TIMEOUT_S)
    try:
        yield
    finally:
        connection.settimeout(before)


def unread(request: Request) -> bool:
    """Whether a body was announced that is not read to its end: where the next request begins is unknown."""
    announced = bool(request.content_length) or "Transfer-Encoding" in request.headers
    return announced and _READ not in request.environ


def parse(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; raises BodyError saying what is wrong and where."""
    _bound(raw)
    try:
        # utf-8-sig: some clients write a byte order mark, and no JSON starts with one.
        text = raw.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BodyError(f"the body is not UTF-8: {error.reason} at byte {error.start}; encode it so") from error
    except json.JSONDecodeError as error:
        raise BodyError(_not_json(error)) from error
    except BodyError:
        raise
    except ValueError as error:
        raise BodyError("the body holds an integer of more than 4300 digits") from error
    if not isinstance(value, dict):
        raise BodyError(f"the body is a JSON {_NAMES[type(value)]}; send a JSON object")
    _check_leaves(value)
    return value


def _not_json(error: json.JSONDecodeError) -> str:
    what = error.msg.removesuffix(" at")
    raw = "; a line break or a tab inside a string: write \\n or \\t there" if what == _CONTROL else ""
    maker = ", or let jq or json.dumps make the body" if raw else "; jq or json.dumps makes a body that is"
    return f"the body is not JSON: {what} at line {error.lineno}, column {error.colno}{raw}{maker}"


class _Repeated(dict[str, Any]):
    """An object that has a key more than once: which of its values is meant, nobody can say."""

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, marked where a key comes again; it is refused once the path to it is known."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    keys = [key for key, _ in pairs]
    repeated = _Repeated(value)
    repeated.key = next(key for key in keys if keys.count(key) > 1)
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


def _bound(raw: bytes) -> None:
    """Depth and number of values, from the bytes alone: neither the parser's stack nor its memory is at risk."""
    if not raw.strip():
        raise BodyError("the body is empty; send a JSON object")
    structure = _STRING.sub(b"", raw)
    values = sum(structure.count(mark) for mark in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        raise BodyError(f"the body holds more than {MAX_VALUES} values; send tensors inline as data_b64")
    brackets = structure.translate(None, _BRACKETS)
    depth = max(accumulate((1 if bracket in b"[{" else -1 for bracket in brackets), initial=0))
    if depth > MAX_DEPTH:
        raise BodyError(f"the body is nested {depth} deep; at most {MAX_DEPTH} levels are taken")


def _check_leaves(body: dict[str, Any]) -> None:
    """Refuses keys that come again, texts that cannot be stored (lone surrogates, NUL), numbers that JSON cannot write
    back (1e999)."""
    pending: list[tuple[Path, Any]] = [((), body)]
    while pending:
        path, value = pending.pop()
        match value:
            case _Repeated(key=key):
                raise BodyError("is given more than once in this object; keep one", (*path, key))
            case dict():
                pending.extend(((*path, key), item) for key, item in value.items())
                for key in value:
                    _check_text(key, path)
            case list():
                pending.extend(((*path, index), item) for index, item in enumerate(value))
            case str():
                _check_text(value, path)
            case float() if not math.isfinite(value):
                raise BodyError("the number is too large for a double", path)


def _check_text(text: str, path: Path) -> None:
    if "\0" in text:
        raise BodyError("the text holds a NUL character; take it out", path)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BodyError(f"the text holds a lone surrogate at character {error.start}", path) from error
