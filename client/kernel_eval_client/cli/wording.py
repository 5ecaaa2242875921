"""Words and styles of the terminal's output."""

from __future__ import annotations

GOOD, BAD, DIM = "bold green", "bold red", "dim"
SHORT = 72
REMARK = 200
"""Maximum length of an error in a table's last column, in characters: the cause may be at its end."""


def milliseconds(value: float | None) -> str:
    """The time with the unit that suits it: µs, ms or s; "–" for None."""
    if value is None:
        return "–"
    if value < 1.0:
        return f"{value * 1000:.3g} µs"
    return f"{value:.4g} ms" if value < 1000.0 else f"{value / 1000:.4g} s"


def first_line(text: str, maximum: int = SHORT) -> str:
    """The first line of a text, cut to `maximum` characters."""
    line = text.partition("\n")[0]
    return line if len(line) <= maximum else f"{line[: maximum - 1]}…"


def for_command_line(text: str) -> str:
    """The service's message, with the command line's options in place of its advice about contracts."""
    return text.replace(
        "/docs and /openapi.json have whole requests",
        "--io FILE names a file with it (--reference-io for the reference), else NAME.io.json next to NAME.cu is read",
    )
