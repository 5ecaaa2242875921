"""Finds the name that a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_CHARS = 60
"""Maximum length that is compared: a comparison takes time with the square of it."""


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """The choice that a value looks like, as a question at the end of a message; empty without one."""
    return "".join(f"; did you mean {each}?" for each in get_close_matches(value.lower()[:MAX_CHARS], list(choices), 1))
