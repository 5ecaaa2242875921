"""The words of a submission, told apart from the service's: on one line, without control characters, marked."""

from __future__ import annotations

import unicodedata

MARK = "| "
"""Before every line that a submission wrote, or may have."""
NAME = 60
"""Characters of a name at most."""

_SHOWN_AS = {"\t": " ", "\u00a0": " "}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""What moves the cursor, ends a line, or turns the order of what is read."""


def cut(text: str, most: int) -> str:
    """At most so many characters; where there were more, an ellipsis is the last."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def plain(text: str) -> str:
    """On one line: each control character is a replacement character, so that nothing moves."""
    return "".join(_plain(character) for character in text) if not _is_plain(text) else text


def plain_lines(text: str) -> str:
    """The same of text that may have several lines: line breaks and tabs stay."""
    if _is_plain(text):
        return text
    kept = text.replace("\r\n", "\n")
    return "".join(each if each in "\n\t" else _plain(each) for each in kept)


def named(name: object) -> str:
    """A name on one line, and not too long to be one."""
    return cut(plain(str(name)), NAME)


def quoted(line: str, most: int) -> str:
    """One line of the submission's."""
    return MARK + cut(plain(line), most)


def lines(text: str) -> list[str]:
    """As the marks see them: also what ends a line elsewhere does."""
    return text.splitlines() or [""]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _plain(character: str) -> str:
    if character in _SHOWN_AS:
        return _SHOWN_AS[character]
    return "\ufffd" if unicodedata.category(character) in _HIDDEN else character
