"""Makes untrusted text safe for a terminal: it cannot move the cursor, end a line or reverse what is read.

The client has its own copy in `kernel_eval_client/untrusted_text.py`, because it imports nothing of the server.
"""

from __future__ import annotations

import unicodedata

CONTINUED = "    "
"""Precedes every further line of a log entry, so that no line looks like an entry of its own."""

_REPLACED_BY = {"\t": " ", "\u00a0": " "}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, invisible ordering and joining, lone surrogates, and line breaks of other alphabets."""


def plain(text: str) -> str:
    """The text on one line, with a replacement character for each hidden one."""
    return text if _is_plain(text) else "".join(map(_plain, text))


def plain_lines(text: str) -> str:
    """As `plain`, but keeps line breaks and tabs."""
    if _is_plain(text):
        return text
    return "".join(each if each in "\n\t" else _plain(each) for each in text.replace("\r\n", "\n"))


def one_entry(text: str) -> str:
    """As `plain_lines`, for a log: indents each further line."""
    return plain_lines(text).rstrip("\n").replace("\n", f"\n{CONTINUED}")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _plain(character: str) -> str:
    if character in _REPLACED_BY:
        return _REPLACED_BY[character]
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _HIDDEN else character
