"""Messages between the referee and an untrusted process: length-prefixed JSON over a Unix socket, with descriptors.

Parsing is strict: a frame over the cap, or one that is no JSON object, raises ProtocolError. Nothing is unpickled.
"""

from __future__ import annotations

import array
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

HEADER = struct.Struct("!I")
MAX_FRAME = 96 << 20
MAX_DESCRIPTORS = 4
MAX_NUMBER = 1e15
MAX_PARTS = 1 << 21
"""Maximum number of parts of a message: each part takes many times its two bytes in memory (a frame of `[],`: 2 GB)."""
MIN_COUNTED_BYTES = 1 << 20
"""Shorter messages, in bytes, cannot have too many parts, so they are not counted."""

READY = "ready"
"""The first message of a process: it is set up and takes messages from now on."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the unterminated start of one: the pattern looks at each quote once."""

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


def finite_numbers(wire: Any) -> list[float]:
    """The finite numbers of an untrusted list; other values in it are dropped, and anything but a list gives none."""
    if not isinstance(wire, list):
        return []
    plain = [number for number in wire if type(number) in (int, float) and abs(number) < MAX_NUMBER]
    return [float(number) for number in plain]


def byte_count(wire: Any) -> int | None:
    """A number of bytes by a runner's word; None if it is none."""
    return wire if type(wire) is int and 0 <= wire < MAX_NUMBER else None


class Channel:
    """One end of a socket pair. Not thread-safe: one request at a time.

    Only an end with `takes_descriptors` accepts descriptors. The kernel closes all others on arrival, however many
    come.
    """

    def __init__(self, sock: socket.socket, *, takes_descriptors: bool = False) -> None:
        self.sock = sock
        self._ancillary_bytes = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4) if takes_descriptors else 0
        self._buffer = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(
        self, message: Message, descriptors: tuple[int, ...] = (), meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Sends one message; `descriptors` travel with its first byte. Raises ChannelClosed.

        `meanwhile` is called while the other side does not read: it waits a moment, or raises to give up.
        """
        payload = json.dumps(message, separators=(",", ":")).encode()
        if len(payload) > MAX_FRAME:
            raise ProtocolError(f"a message of {len(payload)} bytes is over the cap of {MAX_FRAME}")
        unsent = memoryview(HEADER.pack(len(payload)) + payload)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            while unsent:  # Sending fails even for an empty rest if the other end has closed.
                try:
                    sent = self.sock.sendmsg([unsent], ancillary, 0 if meanwhile is None else socket.MSG_DONTWAIT)
                except BlockingIOError:
                    if meanwhile is None:
                        raise
                    meanwhile()
                    continue
                unsent, ancillary = unsent[sent:], []
        except (BrokenPipeError, ConnectionError, TimeoutError) as error:
            raise ChannelClosed("the process at the other end is gone or no longer reads") from error

    def receive(self, awake_s: float = 0.0) -> Message:
        """Waits for the next message, busily for the first `awake_s` seconds. Raises ChannelClosed or ProtocolError."""
        asleep = time.perf_counter() + awake_s
        while (message := self.poll(awake=time.perf_counter() < asleep)) is None:
            pass
        return message

    def poll(self, *, awake: bool = False) -> Message | None:
        """Reads the socket once and returns the next message if it is complete. The read blocks unless `awake`."""
        message = self._take()
        if message is not None:
            return message
        self._fill(socket.MSG_DONTWAIT if awake else 0)
        return self._take()

    def descriptor(self) -> int:
        """Takes the oldest descriptor received; the caller owns it."""
        if not self._descriptors:
            raise ProtocolError("the message came without its descriptor")
        return self._descriptors.pop(0)

    def close(self) -> None:
        self.sock.close()

    def _fill(self, flags: int) -> None:
        try:
            data, ancillary, _, _ = self.sock.recvmsg(1 << 18, self._ancillary_bytes, flags)
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise ChannelClosed("the process at the other end is gone") from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                self._descriptors.extend(received)
        if not data:
            raise ChannelClosed("the process at the other end is gone")
        self._buffer += data

    def _take(self) -> Message | None:
        if len(self._buffer) < HEADER.size:
            return None
        (size,) = HEADER.unpack_from(self._buffer)
        if size > MAX_FRAME:
            raise ProtocolError(f"a frame of {size} bytes is over the cap of {MAX_FRAME}")
        if len(self._buffer) < HEADER.size + size:
            return None
        payload = bytes(self._buffer[HEADER.size : HEADER.size + size])
        del self._buffer[: HEADER.size + size]
        if size > MIN_COUNTED_BYTES and _parts(payload) > MAX_PARTS:
            raise ProtocolError(f"a message has at most {MAX_PARTS} parts")
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("a frame is not JSON") from error
        if not isinstance(message, dict) or not isinstance(message.get("op"), str):
            raise ProtocolError("a frame is not a message")
        return message


def _parts(payload: bytes) -> int:
    """Counts the members, lists and objects of a JSON text outside its strings, and stops once there are too many."""
    most = 2 * MAX_PARTS  # A member has two strings at most.
    bare, strings = _TEXT.subn(b"", payload, count=most)
    return strings if strings == most else bare.count(b",") + bare.count(b"[") + bare.count(b"{")
