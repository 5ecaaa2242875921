"""Words and styles of the terminal's output."""

from __future__ import annotations

GOOD, BAD, DIM = "bold green", "bold red", "dim"
SHORT = 72


def milliseconds(value: float | None) -> str:
    """At the unit that reads best."""
    if value is None:
        return "–"
    if value < 1.0:
        return f"{value * 1000:.3g} µs"
    return f"{value:.4g} ms" if value < 1000.0 else f"{value / 1000:.4g} s"


def plain(text: str) -> str:
    """Without what a terminal would obey: it is strangers' text."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def short(text: str) -> str:
    """Its first line, cut where it is long."""
    line = text.partition("\n")[0]
    return line if len(line) <= SHORT else f"{line[: SHORT - 1]}…"


def of_command(text: str) -> str:
    """What the service advises, in the command line's words: where a contract is looked for."""
    return text.replace(
        "/docs and /openapi.json have whole requests",
        "--io FILE names a file with it (--reference-io for the reference), else NAME.io.json beside NAME.cu is taken",
    )
