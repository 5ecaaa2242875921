"""`X-Request-Id`: the client's id or a new one; in the response, and in every log line about the request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from uuid import uuid4
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tasks.node.log_config import about

HEADER = "X-Request-Id"
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestIds:
    """Wraps the application and gives each request an id; replaces a client's id that does not match `_ACCEPTABLE`."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        client_id = environ.get("HTTP_X_REQUEST_ID", "")
        request_id = client_id if _ACCEPTABLE.fullmatch(client_id) else uuid4().hex

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, (HEADER, request_id)], *more)

        with about(request_id=request_id):
            return self._application(environ, start)
