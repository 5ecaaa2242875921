"""Captures what a submission prints: read as it comes and bounded, so that 100 MB of it cost no memory."""

from __future__ import annotations

import os

MAX_BYTES = 32_768


class CapturedOutput:
    """The read end of a runner's stdout and stderr: keeps the first and the last `MAX_BYTES`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def fileno(self) -> int:
        return self.descriptor

    def drain(self) -> bool:
        """Reads what is available; False once the other end is closed."""
        try:
            data = os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return True
        self._total += len(data)
        room = MAX_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[:-MAX_BYTES]
        return bool(data)

    def text(self) -> str:
        """The captured bytes as text, with a line in place of omitted ones."""
        omitted = self._total - len(self._head) - len(self._tail)
        middle = f"\n[... {omitted} bytes left out ...]\n" if omitted else ""
        return self._head.decode(errors="replace") + middle + self._tail.decode(errors="replace")

    def close(self) -> None:
        os.close(self.descriptor)
