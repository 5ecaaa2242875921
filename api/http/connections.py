"""A client's connection: a socket with deadlines for whole bodies and responses, and the incoming request.

No thread waits for a client: the process's event loop collects a request's headers, and its body where that is small. A
thread then processes the request, and reads and writes the rest under deadlines for the whole, not for each step.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from collections.abc import Iterator
from threading import Lock
from typing import Any

from api.http.limits import (
    BODY_BYTES_PER_S,
    BODY_S,
    HEAD_BYTES,
    SEND_BYTES,
    SMALL_BODY,
    UNSENT_BYTES,
)

PIECE = 64 << 10

_END = re.compile(rb"\r\n\r\n|(?<!\r)\n")
"""End of the headers; or a bare line feed, which Gunicorn rejects at once."""
_END_BYTES = 4
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect[ \t]*:", re.IGNORECASE)


class _Unsent:
    """Total size of unsent response bytes of all connections in this process."""

    def __init__(self) -> None:
        self._size = 0
        self._lock = Lock()

    def take(self, size: int) -> bool:
        with self._lock:
            if self._size + size > UNSENT_BYTES:
                return False
            self._size += size
            return True

    def free(self, size: int) -> None:
        with self._lock:
            self._size -= size


_unsent = _Unsent()


class PatientSocket(socket.socket):
    """A client's socket as a thread uses it. Raises TimeoutError for a slow body and BrokenPipeError for a slow reader.

    `begin` starts the time of a body. Timeouts set by the caller count where they are shorter.
    """

    def __init__(self, **like: Any) -> None:
        super().__init__(**like)
        self._since, self._received = 0.0, 0
        self.unsent = bytearray()

    def begin(self, since: float, received: int) -> None:
        """Starts the body's deadline: its headers were complete at `since` (monotonic), and `received` body bytes have
        arrived."""
        self._since, self._received = since, received

    def recv(self, size: int, flags: int = 0) -> bytes:
        seconds = self._since + BODY_S + self._received / BODY_BYTES_PER_S - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the body as a whole is late")
        before = self.gettimeout()
        self.settimeout(seconds if before is None else min(before, seconds))
        try:
            data = super().recv(size, flags)
        finally:
            self.settimeout(before)
        self._received += len(data)
        return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends what the client accepts at once, and stores the rest for the event loop.

        Raises BrokenPipeError, as for a lost client, where there is no room for the rest.
        """
        remainder = memoryview(data).cast("B")
        if self.flush():
            remainder = remainder[self._send_some(remainder) :]
        if not remainder:
            return
        if not _unsent.take(len(remainder)):
            self._discard()
            raise BrokenPipeError(errno.EPIPE, "too many clients do not read their answers")
        self.unsent += remainder

    def flush(self) -> bool:
        """Sends pending bytes as far as the client accepts them at once; returns whether nothing remains."""
        if self.unsent:
            with memoryview(self.unsent) as pending:
                sent = self._send_some(pending)
            del self.unsent[:sent]
            _unsent.free(sent)
        return not self.unsent

    def _send_some(self, data: memoryview) -> int:
        before, sent = self.gettimeout(), 0
        self.settimeout(0)
        try:
            while sent < len(data):
                sent += super().send(data[sent : sent + SEND_BYTES])
        except BlockingIOError:
            pass
        finally:
            self.settimeout(before)
        return sent

    def _discard(self) -> None:
        _unsent.free(len(self.unsent))
        self.unsent.clear()

    def close(self) -> None:
        self._discard()
        super().close()

    def recv_now(self) -> bytes:
        """Reads the bytes that have arrived, b"" at the end; for the event loop, on a non-blocking socket. Raises
        OSError."""
        return super().recv(PIECE)


class Incoming:
    """A request that has not fully arrived."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray()
        self._head: int | None = None
        self._needed = 0
        self.head_at = 0.0
        """Time when the headers were complete; monotonic."""
        self.add(data)

    def add(self, piece: bytes) -> None:
        """Appends received bytes; each byte is searched once."""
        start = max(0, len(self._data) - _END_BYTES + 1)
        self._data += piece
        if self._head is None and (end := _END.search(self._data, start)):
            self.head_at = time.monotonic()
            self._head = end.end()
            self._needed = self._head + self._small_body()

    def _small_body(self) -> int:
        head = bytes(self._data[: self._head])
        length = _LENGTH.search(head)
        # A client that expects "100 Continue" sends no body before it.
        if length is None or int(length[1]) > SMALL_BODY or _EXPECT.search(head):
            return 0
        return int(length[1])

    @property
    def begun(self) -> bool:
        return bool(self._data)

    @property
    def has_head(self) -> bool:
        return self._head is not None

    @property
    def whole(self) -> bool:
        """Whether a thread can take the request: nothing is left to wait for, or the body is large."""
        return self._head is not None and len(self._data) >= self._needed

    @property
    def too_long(self) -> bool:
        return self._head is None and len(self._data) > HEAD_BYTES

    @property
    def body_bytes(self) -> int:
        return len(self._data) - (self._head or 0)

    def take(self) -> bytes:
        data, self._data = bytes(self._data), bytearray()
        return data


class DeadlineQueue:
    """Connections without a thread, ordered by their deadlines; all may stay equally long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[Any, float] = {}

    def __contains__(self, connection: Any) -> bool:
        return connection in self._ends

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, connection: Any) -> None:
        self._ends.pop(connection, None)
        self._ends[connection] = time.monotonic() + self._seconds

    def discard(self, connection: Any) -> None:
        self._ends.pop(connection, None)

    def oldest(self) -> Any | None:
        return next(iter(self._ends), None)

    def late(self) -> Iterator[Any]:
        """Connections whose time is over; the caller removes each before it takes the next."""
        now = time.monotonic()
        while (first := self.oldest()) is not None and self._ends[first] <= now:
            yield first

    def all(self) -> list[Any]:
        return list(self._ends)

    def end_by(self, at: float) -> None:
        """Moves every deadline to `at` (monotonic) at the latest."""
        self._ends = {connection: min(end, at) for connection, end in self._ends.items()}
