"""Reads a request's body within limits of size, time and memory, and parses it as strict JSON."""

from __future__ import annotations

from threading import BoundedSemaphore
from typing import Any

from flask import Flask, Request, g
from gunicorn.http.errors import ParseException
from marshmallow import Schema
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from api.http.body_memory import BODIES, BodyReservation, NoRoom
from api.http.limits import BODY_BYTES_PER_S, BODY_S, READERS, SMALL_BODY
from api.http.strict_json import BodyError, cost, parse

_PIECE = 1 << 20
_READ = "kernel_eval.body_read"
_MAX_MESSAGE_CHARS = 200
_TEXT_TYPES = ("", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream")

_readers = BoundedSemaphore(READERS)


class BodyLate(Exception):
    """The rest of the body did not arrive in time."""


class MediaTypeError(BodyError):
    """The body is not JSON and does not claim to be."""


def load(request: Request, schema: Schema) -> dict[str, Any]:
    """Reads and parses the request's body: a webargs location loader, which leaves validation to the view.

    Raises NoRoom where too little memory is free. Where API keys are needed, the content type may be wrong as long as
    the body is JSON: curl declares a form. `api.auth.authentication` says why other services check it.
    """
    room = g.setdefault("body_room", BodyReservation(BODIES))
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise MediaTypeError(f"the body is encoded as {encoding[:100]}; send it as it is, without Content-Encoding")
    raw = _read(request, room)
    if len(raw) > SMALL_BODY:
        room.reserve(cost(raw))
    try:
        return parse(raw)
    except BodyError as error:
        if not error.path and request.mimetype not in _TEXT_TYPES and not request.is_json:
            raise MediaTypeError(
                f"the body is {request.mimetype[:100]}; send a JSON object with Content-Type: application/json"
            ) from error
        raise


def release(body: dict[str, Any]) -> None:
    """Drops the body of the current request before its client waits for minutes; `body` is empty afterwards."""
    body.clear()
    if (room := g.get("body_room")) is not None:
        room.give_back()


def register(app: Flask) -> None:
    """Frees the memory reserved for the bodies of `app` when their requests end."""

    @app.teardown_request
    def _give_back(_: BaseException | None) -> None:
        if (room := g.pop("body_room", None)) is not None:
            room.give_back()


def _read(request: Request, room: BodyReservation) -> bytearray:
    """The whole body. Raises RequestEntityTooLarge beyond the app's MAX_CONTENT_LENGTH, BodyLate, or BodyError for bad
    chunks.

    It reads piece by piece, because `get_data` silently truncates a chunked body at the limit.
    """
    most, announced = request.max_content_length, request.content_length
    if most is not None and announced is not None and announced > most:
        raise RequestEntityTooLarge
    body = bytearray()
    # A small body has arrived already (`api.http.accept_balancer`). Others may be slow, and each occupies a thread.
    occupies_reader = announced is None or announced > SMALL_BODY
    if occupies_reader and not _readers.acquire(blocking=False):
        raise NoRoom
    try:
        while piece := request.stream.read(_PIECE):
            room.reserve(len(body) + len(piece))
            body += piece
    except ParseException as error:
        raise BodyError(f"the body is not chunked as HTTP/1.1 has it: {error}"[:_MAX_MESSAGE_CHARS]) from error
    except ClientDisconnected as error:
        if not isinstance(error.__context__, TimeoutError):
            raise
        raise BodyLate(
            f"of {announced or 'the'} bytes {len(body)} came in time ({BODY_S:g} s, and 1 s for each "
            f"{BODY_BYTES_PER_S >> 10} KiB); send as many bytes as Content-Length says"
        ) from error
    finally:
        if occupies_reader:
            _readers.release()
    request.environ[_READ] = True
    return body


def would_block(environ: dict[str, Any]) -> bool:
    """Whether a thread would have to wait for the rest of the request's body."""
    length = environ.get("CONTENT_LENGTH") or "0"
    large = "HTTP_TRANSFER_ENCODING" in environ or not length.isdecimal() or int(length) > SMALL_BODY
    return _READ not in environ and large


def has_unread_body(request: Request) -> bool:
    """Whether an announced body was not read to its end, so that the start of the next request is unknown."""
    announced = bool(request.content_length) or "Transfer-Encoding" in request.headers
    return announced and _READ not in request.environ
