"""Removes control characters from text that reaches standard output and error without a `Terminal`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from kernel_eval_client.untrusted_text import plain_lines


class CleanedStream(io.TextIOBase):
    """A text stream that replaces control characters: tracebacks, warnings and logs may quote untrusted text.

    It says that it is no terminal, so that libraries write no colours to it.
    """

    def __init__(self, target: TextIO) -> None:
        self.target = target

    @property
    def buffer(self) -> io.BufferedIOBase:
        """The byte stream, unfiltered, for protocols such as that of `mcp`."""
        return self.target.buffer  # type: ignore[return-value]

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.target.encoding

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self.target.write(plain_lines(text))
        return len(text)

    def flush(self) -> None:
        self.target.flush()


def clean() -> None:
    """Replaces `sys.stdout` and `sys.stderr`, so that all text passes a `Terminal` or a `CleanedStream`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks must not raise.
            stream.reconfigure(errors="replace")
    sys.stdout, sys.stderr = CleanedStream(sys.stdout), CleanedStream(sys.stderr)


@contextmanager
def cleaned() -> Iterator[None]:
    """Applies `clean` within the context, unless it is applied already."""
    if isinstance(sys.stdout, CleanedStream):
        yield
        return
    before = sys.stdout, sys.stderr
    clean()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def target_of(stream: TextIO | CleanedStream) -> TextIO:
    """The stream that a `Terminal` writes to."""
    return stream.target if isinstance(stream, CleanedStream) else stream
