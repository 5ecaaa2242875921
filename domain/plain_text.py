"""Strangers' text as a terminal may show it: nothing in it moves the cursor, ends a line or turns what is read.

The client has the same in `kernel_eval_client/quoted.py`: it imports nothing of the server.
"""

from __future__ import annotations

import unicodedata

CONTINUED = "    "
"""Before every further line of one entry of a log, so that none looks like an entry of its own."""

_REPLACED_BY = {"\t": " ", "\u00a0": " "}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, what orders or joins text unseen, lone surrogates, and line breaks of other alphabets."""


def plain(text: str) -> str:
    """On one line: each such character is a replacement character."""
    return text if _is_plain(text) else "".join(map(_plain, text))


def plain_lines(text: str) -> str:
    """The same of text that may have several lines: line breaks and tabs stay."""
    if _is_plain(text):
        return text
    return "".join(each if each in "\n\t" else _plain(each) for each in text.replace("\r\n", "\n"))


def one_entry(text: str) -> str:
    """The same for a log: each further line is indented."""
    return plain_lines(text).rstrip("\n").replace("\n", f"\n{CONTINUED}")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _plain(character: str) -> str:
    if character in _REPLACED_BY:
        return _REPLACED_BY[character]
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _HIDDEN else character
