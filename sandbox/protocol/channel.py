"""Messages between the referee and an untrusted process: length-prefixed JSON over a Unix socket, descriptors beside.

Parsed strictly: a frame over the cap, a frame that is no JSON object, a field of another type than expected all raise
ProtocolError, and nothing is ever unpickled.
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
"""Of a message: each takes many times the memory that its two bytes did (`[],` of a frame's length: 2 GB)."""
FEW_BYTES = 1 << 20
"""Of so short a message nobody counts the parts."""

READY = "ready"
"""What a process says first: it has what it needs and takes messages from now on."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or what begins as one and has no end: so that no quote is looked at twice."""

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


def finite_numbers(wire: Any) -> list[float]:
    """The finite numbers of an untrusted list: nothing for what is no list, nothing in place of what is no number."""
    if not isinstance(wire, list):
        return []
    plain = [number for number in wire if type(number) in (int, float) and abs(number) < MAX_NUMBER]
    return [float(number) for number in plain]


class Channel:
    """One end of a socket pair. Not thread-safe: one request at a time.

    Only the end that is told to takes descriptors: the other side's are closed by the kernel before anyone sees them,
    however many it sends.
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

        `meanwhile` is called as long as the other side does not read: it waits a moment, or raises what ends that.
        """
        payload = json.dumps(message, separators=(",", ":")).encode()
        if len(payload) > MAX_FRAME:
            raise ProtocolError(f"a message of {len(payload)} bytes is over the cap of {MAX_FRAME}")
        left = memoryview(HEADER.pack(len(payload)) + payload)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            while left:  # To send nothing fails too, where the other end has what it wanted and hung up.
                try:
                    sent = self.sock.sendmsg([left], ancillary, 0 if meanwhile is None else socket.MSG_DONTWAIT)
                except BlockingIOError:
                    if meanwhile is None:
                        raise
                    meanwhile()
                    continue
                left, ancillary = left[sent:], []
        except (BrokenPipeError, ConnectionError, TimeoutError) as error:
            raise ChannelClosed("the process at the other end is gone or no longer reads") from error

    def receive(self, awake_s: float = 0.0) -> Message:
        """Waits for the next message, the first `awake_s` seconds awake. Raises ChannelClosed or ProtocolError."""
        asleep = time.perf_counter() + awake_s
        while (message := self.poll(awake=time.perf_counter() < asleep)) is None:
            pass
        return message

    def poll(self, *, awake: bool = False) -> Message | None:
        """The next message if it is complete after one read of the socket, which blocks if it does, unless `awake`."""
        message = self._take()
        if message is not None:
            return message
        self._fill(socket.MSG_DONTWAIT if awake else 0)
        return self._take()

    def descriptor(self) -> int:
        """The oldest descriptor received and not yet taken; the caller owns it."""
        if not self._descriptors:
            raise ProtocolError("the message came without its descriptor")
        return self._descriptors.pop(0)

    def close(self) -> None:
        self.sock.close()

    def _fill(self, how: int) -> None:
        try:
            data, ancillary, _, _ = self.sock.recvmsg(1 << 18, self._ancillary_bytes, how)
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
        if size > FEW_BYTES and _parts(payload) > MAX_PARTS:
            raise ProtocolError(f"a message has at most {MAX_PARTS} parts")
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("a frame is not JSON") from error
        if not isinstance(message, dict) or not isinstance(message.get("op"), str):
            raise ProtocolError("a frame is not a message")
        return message


def _parts(payload: bytes) -> int:
    """The members, lists and objects of a JSON text, counted so far that they are too many; none stands in a string."""
    most = 2 * MAX_PARTS  # A member has two strings at most.
    bare, strings = _TEXT.subn(b"", payload, count=most)
    return strings if strings == most else bare.count(b",") + bare.count(b"[") + bare.count(b"{")
