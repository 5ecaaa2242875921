"""A small real HTTP server that answers as it was told, or breaks the connection."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Wire = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What is answered; status 0 breaks the connection instead."""

    status: int = 200
    body: Wire | bytes = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


BROKEN = Reply(0)


def problem(status: int, kind: str = "", **headers: str) -> Reply:
    name = f"urn:kernel-eval:problem:{kind}" if kind else "about:blank"
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Reply(status, {"type": name, "status": status, "detail": f"told {status}"}, named)


def result(job_id: str = "j1", verdict: str = "passed") -> Wire:
    """The least that is a result."""
    outcome = {"status": verdict, "compiled": True, "correctness": verdict == "passed", "timing": None}
    return {"job_id": job_id, "verdict": verdict, "kernel_exec_result": outcome}


def job(state: str, job_id: str = "j1", found: Wire | None = None, **more: Any) -> Wire:
    """The least that is a job."""
    return {"job_id": job_id, "state": state, "stage": "done", "timeline": [], "result": found, **more}


class Told:
    """Answers with one reply after another, the last one for ever; or with what a function makes of each request."""

    def __init__(self, *replies: Reply, answer: Callable[[Seen], Reply] | None = None) -> None:
        self._replies = list(replies)
        self._answer = answer
        self._lock = threading.Lock()
        self.seen: deque[Seen] = deque(maxlen=1000)
        self.url = ""

    def reply(self, request: Seen) -> Reply:
        with self._lock:
            self.seen.append(request)
            if self._answer is None:
                return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return self._answer(request)


@contextmanager
def listening(told: Told) -> Iterator[Told]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            request = Seen(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)
            reply = told.reply(request)
            if not reply.status:
                self.close_connection = True
                return
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _any

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
