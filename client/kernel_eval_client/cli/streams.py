"""Standard output and error of the command line, for whatever does not print through a `Terminal`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from kernel_eval_client.quoted import plain_lines


class Cleaned(io.TextIOBase):
    """A stream that no control character passes: tracebacks, warnings and libraries' logs may hold strangers' text.

    It is no terminal, so that nobody writes colours to it.
    """

    def __init__(self, behind: TextIO) -> None:
        self.behind = behind

    @property
    def buffer(self) -> io.BufferedIOBase:
        """The bytes' stream: what is written there is no text for people, such as the protocol of `mcp`."""
        return self.behind.buffer  # type: ignore[return-value]

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.behind.encoding

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self.behind.write(plain_lines(text))
        return len(text)

    def flush(self) -> None:
        self.behind.flush()


def clean() -> None:
    """From now on nothing of this process reaches a terminal but through a `Terminal` or a `Cleaned` stream."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What the terminal's encoding lacks is no reason to fail.
            stream.reconfigure(errors="replace")
    sys.stdout, sys.stderr = Cleaned(sys.stdout), Cleaned(sys.stderr)


@contextmanager
def cleaned() -> Iterator[None]:
    """The same for a while, where it is not so already."""
    if isinstance(sys.stdout, Cleaned):
        yield
        return
    before = sys.stdout, sys.stderr
    clean()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def behind(stream: TextIO | Cleaned) -> TextIO:
    """The stream that a `Terminal` writes to."""
    return stream.behind if isinstance(stream, Cleaned) else stream
