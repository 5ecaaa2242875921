"""A console that delays nobody: a thread writes, so that a stopped terminal or an unread pipe blocks only itself."""

from __future__ import annotations

import io
import os
from queue import SimpleQueue
from threading import Thread
from typing import TextIO

MAX_WAITING = 4096
"""Maximum texts that wait to be written; further ones are left out."""

CLOSE_S = 1.0
"""Maximum time, in s, for the last texts to be written."""


class BackgroundOutput(io.TextIOBase):
    """A text file that writes to the descriptor of `file` from a thread of its own; without a file it writes nothing.

    `write` never waits and never fails. Texts are left out while too many wait, which a line says later, and for good
    once the descriptor fails: the terminal is closed, or `tee` has ended on the same Ctrl-C.
    """

    def __init__(self, file: TextIO | None) -> None:
        # The descriptor and not the file, whose lock a blocked thread would hold when the interpreter ends.
        self._descriptor = file.fileno() if file is not None else os.open(os.devnull, os.O_WRONLY)
        self._texts: SimpleQueue[str | None] = SimpleQueue()
        self._left_out = 0
        self._thread = Thread(target=self._write_all, name="console", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        if self._texts.qsize() >= MAX_WAITING:
            self._left_out += 1
        elif self._thread.is_alive():
            missing, self._left_out = self._left_out, 0
            note = f"({missing} lines are only in the log files: nothing read them here)\n" if missing else ""
            self._texts.put(note + text)
        return len(text)

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Waits for the last texts to be written, but not for a console that blocks."""
        if not self.closed:
            self._texts.put(None)
            self._thread.join(CLOSE_S)
        super().close()

    def _write_all(self) -> None:
        while (text := self._texts.get()) is not None:
            data = text.encode(errors="replace")
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                return
