"""What a submission printed: read as it comes, kept to a bound, so that 100 MB of it cost nothing."""

from __future__ import annotations

import os

KEPT = 32_768


class Output:
    """The read end of a runner's stdout and stderr: keeps the first and the last `KEPT` bytes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def fileno(self) -> int:
        return self.descriptor

    def drain(self) -> bool:
        """Reads what is there; False once the other end is closed."""
        try:
            data = os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return True
        self._seen += len(data)
        room = KEPT - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[:-KEPT]
        return bool(data)

    def text(self) -> str:
        """The kept bytes as text, with a line in place of what was left out."""
        left_out = self._seen - len(self._head) - len(self._tail)
        middle = f"\n[... {left_out} bytes left out ...]\n" if left_out else ""
        return self._head.decode(errors="replace") + middle + self._tail.decode(errors="replace")

    def close(self) -> None:
        os.close(self.descriptor)
