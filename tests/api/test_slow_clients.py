"""Clients that are slow, by accident or on purpose, at the real server: they hold up nobody but themselves."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest
from redis import Redis

from api.http import connections
from api.http.connections import DeadlineQueue, Incoming, PatientSocket
from api.http.limits import (
    BODY_BYTES_PER_S,
    BODY_S,
    HEAD_BYTES,
    HEAD_S,
    PROCESSES,
    SEND_BYTES,
    SMALL_BODY,
    THREADS,
)
from tests.api.test_server import Server, serving

MANY = PROCESSES * THREADS + 120
"""More than there are threads in all processes."""
LOOKS, LOOK_EVERY_S = 10, 0.3
ANSWERED_S = HEAD_S / 2
"""A thread that waits for a slow client has its time first: HEAD_S, which the request for /health would wait too."""
LATE_S = 20.0
"""Beyond its deadline, by when a client has been told on a busy host."""

REQUEST = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Redis.from_url(redis_url) as client:
        client.flushall()  # Without the workers of earlier tests.
    with serving(redis_url, tmp_path_factory.mktemp("slow"), {}) as started:
        yield started


class Clients:
    """Many connections, each of which has sent the same; while this is open, more of it comes now and then."""

    def __init__(self, server: Server, number: int, sent: bytes, more: bytes = b"", *, deaf: bool = False) -> None:
        self._to = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        self._number, self._sent, self._more, self._deaf = number, sent, more, deaf
        self._ended = Event()
        self._trickling = Thread(target=self._trickle)
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Clients:
        for _ in range(self._number):
            client = socket.socket()
            self.sockets.append(client)
            if self._deaf:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(LATE_S + HEAD_S + BODY_S)
            client.connect(self._to)
            client.sendall(self._sent)
        self._trickling.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._trickling.join()
        for client in self.sockets:
            client.close()

    def _trickle(self) -> None:
        while self._more and not self._ended.wait(1.0):
            for client in self.sockets:
                with suppress(OSError):  # It has been closed, as it should be.
                    client.send(self._more)

    def answers(self) -> list[bytes]:
        """The first line and the last of what each is told until its connection ends."""
        return [_all(client) for client in self.sockets]


def _all(client: socket.socket) -> bytes:
    told = b""
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            told += piece
    return told


def looked(server: Server) -> list[float]:
    """How long /health took, again and again, each on a connection of its own."""
    took = []
    for _ in range(LOOKS):
        began = time.monotonic()
        assert httpx.get(f"{server.url}/health", timeout=10).status_code == 503, "it has no worker"
        took.append(time.monotonic() - began)
        time.sleep(LOOK_EVERY_S)
    return took


SLOW: dict[str, tuple[bytes, bytes]] = {
    "headers": (REQUEST, b"X-A: b\r\n"),
    "nothing": (b"", b""),
    "a small body": (POST + b"Content-Length: 4000\r\n\r\n{", b" "),
    "a large body": (POST + b"Content-Length: 60000000\r\n\r\n{", b" "),
    "a body in chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n"),
    "a body that nobody reads": (
        REQUEST.replace(b"openapi.json", b"nowhere") + b"Content-Length: 999999\r\n\r\n{",
        b" ",
    ),
    "the next headers": (REQUEST.replace(b"openapi.json", b"nowhere") + b"\r\n" + REQUEST, b"X-A: b\r\n"),
    "their end": (REQUEST.replace(b"openapi.json", b"nowhere") + b"Connection: close\r\n\r\n", b""),
}


@pytest.mark.parametrize(("sent", "more"), SLOW.values(), ids=list(SLOW))
def test_health_beside_slow_clients_is_answered(server: Server, sent: bytes, more: bytes) -> None:
    with Clients(server, MANY, sent, more):
        took = looked(server)
    assert statistics.median(took) < ANSWERED_S, took


def test_health_beside_clients_that_read_nothing_is_answered(server: Server) -> None:
    with Clients(server, MANY, REQUEST + b"\r\n", deaf=True):
        # So many answers take a while to make; a thread that had to wait for a client to read would wait for ever.
        httpx.get(f"{server.url}/health", timeout=60)
        took = looked(server)
    assert statistics.median(took) < ANSWERED_S, took


def test_late_requests_are_answered_with_408(server: Server) -> None:
    with (
        Clients(server, 20, *SLOW["headers"]) as headers,
        Clients(server, 20, b"") as nothing,
        Clients(server, 20, *SLOW["a small body"]) as small,
        Clients(server, 20, *SLOW["a large body"]) as large,
        Clients(server, 20, *SLOW["a body in chunks"]) as chunks,
    ):
        assert set(nothing.answers()) == {b""}
        for clients, kind in ((headers, None), (small, "body-late"), (large, "body-late"), (chunks, "body-late")):
            for answer in clients.answers():
                head, _, body = answer.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 408 ") and b"\r\nConnection: close" in head, answer
                problem = json.loads(body)
                assert problem["status"] == 408
                assert kind in problem["type"] if kind else "within 10 s" in problem["detail"]


def test_a_slow_body_that_comes_at_the_least_rate_is_taken(server: Server) -> None:
    body = json.dumps({"kernel": {"source_code": " " * 150_000, "kernel_type": "torch"}}).encode()
    with Clients(server, 1, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)) as clients:
        for start in range(0, len(body), 10_000):
            clients.sockets[0].sendall(body[start : start + 10_000])
            time.sleep(0.05)
        assert clients.answers()[0].startswith(b"HTTP/1.1 202 ")


def test_what_comes_together_or_in_pieces_is_answered(server: Server) -> None:
    body = b'{"kernel":{"source_code":"x","kernel_type":"torch"}}'
    post = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = REQUEST.replace(b"openapi.json", b"nowhere") + b"Connection: close\r\n\r\n"
    whole = b"\r\n" + post + post + REQUEST.replace(b"openapi.json", b"nowhere") + b"\r\n" + post + last
    for size in (1, 7, 200, len(whole)):
        with Clients(server, 1, b"") as clients:
            for start in range(0, len(whole), size):
                clients.sockets[0].sendall(whole[start : start + size])
            answer = clients.answers()[0]
        assert re.findall(rb"HTTP/1\.1 ([0-9]+) ", answer) == [b"202", b"202", b"404", b"202", b"404"]


def test_expect_100_continue_is_answered(server: Server) -> None:
    body = b'{"kernel":{"source_code":"x","kernel_type":"torch"}}'
    head = POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    with Clients(server, 1, head) as clients:
        client = clients.sockets[0]
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert _all(client).startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (REQUEST + b"X-A: " + b"a" * (HEAD_BYTES + 1), 431),
        (REQUEST + b"X-A: b\nX-C: d\r\n", 400),
        (b"GET /\n", 400),
        (b"\r\n\r\n", 400),
    ],
)
def test_malformed_headers_are_refused_before_their_deadline(server: Server, sent: bytes, status: int) -> None:
    with Clients(server, 1, sent) as clients:
        assert clients.answers()[0].startswith(b"HTTP/1.1 %d " % status), "and not 408, when they are late"


def test_a_slow_reader_has_the_whole_answer(server: Server) -> None:
    expected = httpx.get(f"{server.url}/openapi.json").content
    assert len(expected) > SEND_BYTES
    with Clients(server, 1, (REQUEST + b"\r\n") * 9 + REQUEST + b"Connection: close\r\n\r\n", deaf=True) as clients:
        time.sleep(1.0)  # The server has more than the client's side takes.
        answer = clients.answers()[0]
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(expected) == 10


def test_the_oldest_are_closed_where_there_is_no_room_for_more(redis_url: str, tmp_path: Path, redis: Redis) -> None:
    limit = ["prlimit", "--nofile=400:400"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2000
    with serving(redis_url, tmp_path, {}, limit) as server, ExitStack() as kept:
        first = kept.enter_context(Clients(server, 300, b""))
        for sent in (b"", REQUEST, REQUEST.replace(b"openapi.json", b"nowhere") + b"\r\n"):
            kept.enter_context(Clients(server, 400, sent))
            looked(server)
        assert set(first.answers()) == {b""}
        assert "Too many open files" not in server.log.read_text()


def test_a_stop_waits_for_no_slow_client(redis_url: str, tmp_path: Path, redis: Redis) -> None:
    with serving(redis_url, tmp_path, {}) as server, ExitStack() as kept:
        for sent in (b"", REQUEST, POST + b"Content-Length: 60000000\r\n\r\n{"):
            kept.enter_context(Clients(server, 20, sent))
        assert httpx.get(f"{server.url}/health").status_code == 503
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
        assert "SIGKILL" not in server.log.read_text()


def test_incoming_request_in_pieces_is_whole_at_its_end() -> None:
    body = b"x" * 100
    head = b"POST / HTTP/1.1\r\nContent-length:  100 \r\n\r\n"
    for size in (1, 2, 3, 1000):
        incoming, whole = Incoming(), head + body
        for start in range(0, len(whole), size):
            assert not incoming.whole
            incoming.add(whole[start : start + size])
            assert incoming.has_head == (start + size >= len(head))
        assert incoming.whole and incoming.body_bytes == 100 and incoming.take() == whole
    assert Incoming(head.replace(b"100", b"%d" % (SMALL_BODY + 1))).whole, "a large body is read by a thread"
    assert not Incoming(head).whole
    assert Incoming(head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")).whole


def test_long_headers_are_looked_at_once() -> None:
    def took(size: int) -> float:
        incoming, began = Incoming(b"GET / HTTP/1.1\r\n"), time.thread_time()
        for _ in range(size):
            incoming.add(b"a")
        return time.thread_time() - began

    assert took(40_000) < 12 * max(took(10_000), 0.005)


def test_recv_limits_the_time_of_the_whole_body(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, other = socket.socketpair()
    ours = PatientSocket(fileno=other.detach())
    with theirs, ours:
        theirs.sendall(b"x" * 1000)
        ours.begin(time.monotonic() - BODY_S, 0)
        with pytest.raises(TimeoutError):
            ours.recv(10)
        ours.begin(time.monotonic() - BODY_S, 600 * BODY_BYTES_PER_S)
        assert ours.recv(10) == b"x" * 10, "its size gives it more"
        ours.settimeout(0.01)
        theirs.setblocking(False)
        assert len(ours.recv(2000)) == 990
        # Gunicorn's own shorter time counts: the body's is longer than the test may take.
        with pytest.raises(TimeoutError, match="timed out"):
            ours.recv(10)


def test_sendall_keeps_what_the_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = bytes(range(256)) * 8192
    pairs = []
    for _ in range(2):
        theirs, other = socket.socketpair()
        pairs.append((theirs, PatientSocket(fileno=other.detach())))
    (theirs, ours), (deaf, last) = pairs
    with theirs, ours, deaf, last:
        ours.sendall(answer)
        ours.sendall(b"end")
        assert ours.unsent
        received = b""
        while not ours.flush():
            received += theirs.recv(1 << 20)
        ours.shutdown(socket.SHUT_WR)
        assert received + _all(theirs) == answer + b"end"
        monkeypatch.setattr(connections, "UNSENT_BYTES", 0)
        with pytest.raises(BrokenPipeError, match="too many"):
            last.sendall(answer)
        assert not last.unsent, "nothing of it is sent afterwards"


def test_deadline_queue_yields_late_connections_in_order() -> None:
    room = DeadlineQueue(0.0)
    for each in "abc":
        room.add(each)
    room.add("a")
    gone = []
    for each in room.late():
        gone.append(each)
        room.discard(each)
    assert gone == ["b", "c", "a"]
