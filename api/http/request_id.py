"""`X-Request-Id`: the client's own, or a new one; in the answer, and in every log line about the request."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any
from uuid import uuid4
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tasks.node.log_config import about

HEADER = "X-Request-Id"
KEY, BEGAN = "request_id", "request_began"
"""Of the WSGI environment: the id, and when the request came (epoch seconds)."""

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestIds:
    """The application, with an id for each request. One of a client that is no plain word is not taken over."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        wanted = environ.get("HTTP_X_REQUEST_ID", "")
        request_id = wanted if _ACCEPTABLE.fullmatch(wanted) else uuid4().hex
        environ[KEY], environ[BEGAN] = request_id, time.time()

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, (HEADER, request_id)], *more)

        with about(request_id=request_id):
            return self._application(environ, start)
