"""Quotes untrusted text: on one line, without control characters, with a mark."""

from __future__ import annotations

import unicodedata

MARK = "| "
"""The prefix of every line that a submission may have written."""
NAME = 60
"""Maximum length of a name, in characters."""

_REPLACEMENTS = {"\t": " ", "\u00a0": " "}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that move the cursor, end a line, or reverse the reading order."""


def cut(text: str, maximum: int) -> str:
    """The text cut to `maximum` characters; the last is an ellipsis if it was longer."""
    return text if len(text) <= maximum else text[: max(0, maximum - 1)] + "…"


def plain(text: str) -> str:
    """The text on one line: a replacement character in place of each control character."""
    return "".join(_plain(character) for character in text) if not _is_plain(text) else text


def plain_lines(text: str) -> str:
    """The text without control characters, except line breaks and tabs."""
    if _is_plain(text):
        return text
    normalized = text.replace("\r\n", "\n")
    return "".join(character if character in "\n\t" else _plain(character) for character in normalized)


def named(name: object) -> str:
    """A name on one line, cut to its maximum length."""
    return cut(plain(str(name)), NAME)


def quoted(line: str, maximum: int) -> str:
    """One line of the submission's."""
    return MARK + cut(plain(line), maximum)


def lines(text: str) -> list[str]:
    """As the marks see them: also what ends a line elsewhere does."""
    return text.splitlines() or [""]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _plain(character: str) -> str:
    if character in _REPLACEMENTS:
        return _REPLACEMENTS[character]
    return "\ufffd" if unicodedata.category(character) in _HIDDEN else character
