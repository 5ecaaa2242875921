"""A server process: threads work for requests that are there, and an event loop waits for all that is not.

Gunicorn's threaded worker would give a thread to each connection that has sent a byte, and wait there for the rest.
"""

from __future__ import annotations

import errno
import json
import resource
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing.sharedctypes import RawArray
from selectors import EVENT_READ, EVENT_WRITE
from socket import SHUT_WR
from typing import Any

from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from api.http import body_memory
from api.http.connections import Incoming, PatientSocket, WaitingRoom
from api.http.limits import HEAD_BYTES, HEAD_S, LINGER_S, PLACES, SEND_BYTES, SEND_S

STEP_S, LONGEST_S = 0.0005, 0.002
"""Longer than another process takes to wake up; for each connection ahead, and at most."""

AT_ONCE = 8
"""Connections that have come meanwhile are taken together, or a thousand of them would be a queue of a second."""

NOBODY = 1 << 30
_held = RawArray("i", [NOBODY] * PLACES)
"""How many connections each has, seen by all as it is made before they are forked; who replaces one has a new place."""

OTHER_FILES = 256
"""Open files of a process that are no clients' connections: to Redis, to receivers of webhooks, logs, libraries."""
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_FILES_S = 0.05


class ServerProcess(ThreadWorker):  # type: ignore[misc] # gunicorn has no type information.
    """Whoever is awake first would take most of the connections that a client makes one after the other.

    They stay with their process, and its threads share one lock: of 64 it had 53 (docs/measurements.md).

    A connection is in one room (`_beginning`: a request is coming; `_idle`: none is; `_ending`: it has had its last
    answer; `_sending`: it does not take that as fast as it was made), or a thread works for it. The rooms are the main
    thread's alone.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._say(self.nr_conns)

    def init_process(self) -> None:
        self._beginning = WaitingRoom(HEAD_S)
        self._idle = WaitingRoom(self.cfg.keepalive)
        self._sending = WaitingRoom(SEND_S)
        self._ending = WaitingRoom(LINGER_S)
        self._rooms = (self._ending, self._beginning, self._idle, self._sending)
        self.worker_connections: int = _files(self.cfg.worker_connections)
        body_memory.BODIES.settle(self.age)
        super().init_process()

    def accept(self, *listener: Any) -> None:
        self._say(self.nr_conns)
        if ahead := self.nr_conns - min(_held):
            time.sleep(min(ahead * STEP_S, LONGEST_S))
        for _ in range(AT_ONCE):
            before = self.nr_conns
            try:
                super().accept(*listener)  # Which takes none where another has.
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                if not self._shed():
                    time.sleep(NO_FILES_S)
            if self.nr_conns <= before:
                break
        self._say(self.nr_conns)

    def enqueue_req(self, conn: Any) -> None:
        """Gunicorn calls this for a new connection, and where a next request has come together with the last."""
        if conn.parser is None:
            conn.sock = PatientSocket(fileno=conn.sock.detach())
            conn.init()
        conn.incoming = Incoming(conn.parser.unreader.take_buffered())
        conn.sock.setblocking(False)
        self._enter(self._beginning, conn, self._readable)
        self._go_on(conn)

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """A thread is done with the connection: it stays for the next request, or ends."""
        conn.keep = not fs.cancelled() and fs.exception() is None and bool(fs.result())
        if conn.sock.unsent:
            conn.sock.setblocking(False)
            self._enter(self._sending, conn, self._writable, EVENT_WRITE)
        else:
            self._answered(conn)

    def _answered(self, conn: Any) -> None:
        if conn.keep and conn.parser.unreader.buf.getvalue():
            self.enqueue_req(conn)
        elif conn.keep:
            conn.incoming = Incoming()
            conn.sock.setblocking(False)
            self._enter(self._idle, conn, self._readable)
            if not self.alive:
                self._cap_keepalive(time.monotonic() + STOP_KEEPALIVE_LINGER)
        else:
            # Closed at once, what the client still sends would have its last answer thrown away.
            with suppress(OSError):
                conn.sock.shutdown(SHUT_WR)
                conn.sock.setblocking(False)
                self._enter(self._ending, conn, self._drained)
                return
            self._close(conn)

    def murder_keepalived(self, force: bool = False) -> None:
        """Gunicorn calls this once a second and at the end; it closes connections whose time is over."""
        for room in (self._idle, self._sending, self._ending):
            for conn in room.all() if force else room.late():
                self._close(conn)
        for conn in self._beginning.all() if force else ():
            self._close(conn)

    def murder_pending(self) -> None:
        for conn in self._beginning.late():
            if conn.incoming.has_head:
                self._take_up(conn)  # To be told that its body is late.
            elif conn.incoming.begun:
                self._refuse(conn, 408, "Request Timeout", f"the headers did not come within {HEAD_S:g} s")
            else:
                self._close(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        for room in self._rooms:
            room.end_by(deadline)

    def gone(self) -> None:
        """Nobody is to wait for it any more; called where it was forked."""
        self._say(NOBODY)
        body_memory.clear(self.age)

    def _readable(self, conn: Any, _: Any) -> None:
        if conn not in self._beginning and conn not in self._idle:
            return  # It was closed for a new one that came in the same moment.
        try:
            piece = conn.sock.recv_now()
        except BlockingIOError:
            return
        except OSError:
            self._close(conn)
            return
        conn.incoming.add(piece)
        if not piece:
            self._take_up(conn) if conn.incoming.has_head else self._close(conn)
        else:
            self._go_on(conn)

    def _go_on(self, conn: Any) -> None:
        """Some of a request has come, or nothing yet."""
        if conn.incoming.whole:
            self._take_up(conn)
        elif conn.incoming.too_long:
            detail = f"the request line and the headers have more than {HEAD_BYTES >> 10} KiB"
            self._refuse(conn, 431, "Request Header Fields Too Large", detail)
        elif conn in self._idle or (conn.incoming.has_head and conn.waits_for_head):
            conn.waits_for_head = not conn.incoming.has_head
            self._idle.discard(conn)
            self._beginning.add(conn)

    def _writable(self, conn: Any, _: Any) -> None:
        if conn not in self._sending:
            return
        before = len(conn.sock.unsent)
        try:
            if conn.sock.flush():
                self._leave(conn)
                self._answered(conn)
                return
        except OSError:
            self._close(conn)
            return
        conn.took += before - len(conn.sock.unsent)
        if conn.took >= SEND_BYTES:
            conn.took = 0
            self._sending.add(conn)

    def _take_up(self, conn: Any) -> None:
        self._leave(conn)
        conn.sock.begin(conn.incoming.head_at, conn.incoming.body_bytes)
        conn.parser.unreader.unread(conn.incoming.take())
        super().enqueue_req(conn)

    def _refuse(self, conn: Any, status: int, title: str, detail: str) -> None:
        """As Flask would, which sees no request yet."""
        body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail, "error": detail})
        head = (
            f"HTTP/1.1 {status} {title}\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with suppress(OSError):
            conn.sock.send((head + body).encode())
        self._close(conn)

    def _drained(self, conn: Any, _: Any) -> None:
        if conn not in self._ending:
            return
        try:
            if conn.sock.recv_now():
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close(conn)

    def _shed(self) -> bool:
        """Close the oldest that no thread works for, first of those that have had their answer; False for none."""
        for room in self._rooms:
            if (oldest := room.oldest()) is not None:
                self._close(oldest)
                return True
        return False

    def _enter(self, room: WaitingRoom, conn: Any, ready: Callable[[Any, Any], None], event: int = EVENT_READ) -> None:
        if self.nr_conns >= self.worker_connections:
            self._shed()
        conn.waits_for_head, conn.took = True, 0
        room.add(conn)
        self.poller.register(conn.sock, event, partial(ready, conn))

    def _leave(self, conn: Any) -> None:
        for room in self._rooms:
            room.discard(conn)
        with suppress(KeyError, ValueError, OSError):
            self.poller.unregister(conn.sock)

    def _close(self, conn: Any) -> None:
        self._leave(conn)
        self.nr_conns -= 1
        conn.close()

    def _say(self, held: int) -> None:
        _held[self.age % PLACES] = held


def _files(connections: int) -> int:
    """How many connections this process can have open: that many, or fewer where the system allows fewer files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY in (soft, hard)
    if soft < connections + OTHER_FILES and not unlimited:
        soft = min(hard, connections + OTHER_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if unlimited else max(1, min(connections, soft - OTHER_FILES))
