"""A server process: threads serve requests that have arrived, and an event loop waits for everything else.

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
from api.http.connections import DeadlineQueue, Incoming, PatientSocket
from api.http.limits import HEAD_BYTES, HEAD_S, LINGER_S, PROCESS_SLOTS, SEND_BYTES, SEND_S

STEP_S, LONGEST_S = 0.0005, 0.002
"""Delay before accepting, for each connection more than the least loaded process has, and its maximum, in s. It exceeds
the time that another process takes to wake up."""

AT_ONCE = 8
"""Maximum connections accepted together; one at a time, a thousand of them would queue for a second."""

UNAVAILABLE = 1 << 30
_connection_counts = RawArray("i", [UNAVAILABLE] * PROCESS_SLOTS)
"""Connections of each process; shared, because it is allocated before the processes fork. A slot without a process has
UNAVAILABLE."""

OTHER_FILES = 256
"""Open files of a process other than client connections: to Redis, to receivers of webhooks, logs, libraries."""
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_FILES_S = 0.05


class ServerProcess(ThreadWorker):  # type: ignore[misc] # gunicorn has no type information.
    """Balances connections over the processes, and waits for slow clients in an event loop.

    Without balancing, the process that wakes first takes most connections of a client that opens them one after the
    other: of 64 one process had 53 (docs/measurements.md). Connections stay with their process, whose threads share one
    lock.

    A connection is either served by a thread or in one of these queues: `_beginning` (a request is arriving), `_idle`,
    `_ending` (it has had its last response) and `_sending` (the client reads its response slowly). Only the main thread
    uses the queues.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Called in the parent, which alone takes and frees slots. Raises ValueError if there is no free one."""
        super().__init__(*args, **kwargs)
        # By age, a process that lives long would share its slot with the 64th that was started after it.
        self._slot = list(_connection_counts).index(UNAVAILABLE)
        self._publish(self.nr_conns)
        # From here on Gunicorn's timeout counts; else a process that hangs while it starts would never be replaced.
        self.notify()

    def init_process(self) -> None:
        self._beginning = DeadlineQueue(HEAD_S)
        self._idle = DeadlineQueue(self.cfg.keepalive)
        self._sending = DeadlineQueue(SEND_S)
        self._ending = DeadlineQueue(LINGER_S)
        self._queues = (self._ending, self._beginning, self._idle, self._sending)
        self.worker_connections: int = _files(self.cfg.worker_connections)
        body_memory.BODIES.take_slot(self._slot)
        super().init_process()

    def accept(self, *listener: Any) -> None:
        self._publish(self.nr_conns)
        if surplus := self.nr_conns - min(_connection_counts):
            time.sleep(min(surplus * STEP_S, LONGEST_S))
        for _ in range(AT_ONCE):
            before = self.nr_conns
            try:
                super().accept(*listener)  # Takes none if another process was first.
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                if not self._shed():
                    time.sleep(NO_FILES_S)
            if self.nr_conns <= before:
                break
        self._publish(self.nr_conns)

    def enqueue_req(self, conn: Any) -> None:
        """Gunicorn calls this for a new connection, and when the next request arrived together with the last."""
        if conn.parser is None:
            conn.sock = PatientSocket(fileno=conn.sock.detach())
            conn.init()
        conn.incoming = Incoming(conn.parser.unreader.take_buffered())
        conn.sock.setblocking(False)
        self._enter(self._beginning, conn, self._readable)
        self._go_on(conn)

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """A thread has finished with the connection, which stays for the next request or ends."""
        conn.keep = not fs.cancelled() and fs.exception() is None and bool(fs.result())
        if conn.sock.unsent:
            conn.sock.setblocking(False)
            self._enter(self._sending, conn, self._writable, EVENT_WRITE)
        else:
            self._after_response(conn)

    def _after_response(self, conn: Any) -> None:
        if conn.keep and conn.parser.unreader.buf.getvalue():
            self.enqueue_req(conn)
        elif conn.keep:
            conn.incoming = Incoming()
            conn.sock.setblocking(False)
            self._enter(self._idle, conn, self._readable)
            if not self.alive:
                self._cap_keepalive(time.monotonic() + STOP_KEEPALIVE_LINGER)
        else:
            # An immediate close would discard the last response, because the client is still sending.
            with suppress(OSError):
                conn.sock.shutdown(SHUT_WR)
                conn.sock.setblocking(False)
                self._enter(self._ending, conn, self._drained)
                return
            self._close(conn)

    def murder_keepalived(self, force: bool = False) -> None:
        """Gunicorn calls this once a second and at the end; it closes connections whose time is over."""
        for queue in (self._idle, self._sending, self._ending):
            for conn in queue.all() if force else queue.late():
                self._close(conn)
        for conn in self._beginning.all() if force else ():
            self._close(conn)

    def murder_pending(self) -> None:
        for conn in self._beginning.late():
            if conn.incoming.has_head:
                self._take_up(conn)  # The response will say that its body is late.
            elif conn.incoming.begun:
                self._refuse(conn, 408, "Request Timeout", f"the headers did not come within {HEAD_S:g} s")
            else:
                self._close(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        for queue in self._queues:
            queue.end_by(deadline)

    def on_exit(self) -> None:
        """Called in the parent: other processes stop considering this one."""
        self._publish(UNAVAILABLE)
        body_memory.clear(self._slot)

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
        """Continues after some of a request arrived, or nothing yet."""
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
                self._after_response(conn)
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
        """Responds as Flask would, which sees no request yet."""
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
        """Closes the oldest connection without a thread, first those that have had their response; False for none."""
        for queue in self._queues:
            if (oldest := queue.oldest()) is not None:
                self._close(oldest)
                return True
        return False

    def _enter(
        self, queue: DeadlineQueue, conn: Any, ready: Callable[[Any, Any], None], event: int = EVENT_READ
    ) -> None:
        if self.nr_conns >= self.worker_connections:
            self._shed()
        conn.waits_for_head, conn.took = True, 0
        queue.add(conn)
        self.poller.register(conn.sock, event, partial(ready, conn))

    def _leave(self, conn: Any) -> None:
        for queue in self._queues:
            queue.discard(conn)
        with suppress(KeyError, ValueError, OSError):
            self.poller.unregister(conn.sock)

    def _close(self, conn: Any) -> None:
        self._leave(conn)
        self.nr_conns -= 1
        conn.close()

    def _publish(self, connections: int) -> None:
        _connection_counts[self._slot] = connections


def _files(connections: int) -> int:
    """How many connections this process can open: the requested number, or fewer where the system limits open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY in (soft, hard)
    if soft < connections + OTHER_FILES and not unlimited:
        soft = min(hard, connections + OTHER_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if unlimited else max(1, min(connections, soft - OTHER_FILES))
