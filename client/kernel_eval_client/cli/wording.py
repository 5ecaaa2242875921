"""Words and styles of the terminal's output."""

from __future__ import annotations

GOOD, BAD, DIM = "bold green", "bold red", "dim"
SHORT = 72
REMARK = 200
"""Of what went wrong, in a table whose last column ends where the terminal does: the cause may stand at the end."""


def milliseconds(value: float | None) -> str:
    """At the unit that reads best."""
    if value is None:
        return "–"
    if value < 1.0:
        return f"{value * 1000:.3g} µs"
    return f"{value:.4g} ms" if value < 1000.0 else f"{value / 1000:.4g} s"


def short(text: str, most: int = SHORT) -> str:
    """Its first line, cut where it is long."""
    line = text.partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def of_command(text: str) -> str:
    """What the service advises, in the command line's words: where a contract is looked for."""
    return text.replace(
        "/docs and /openapi.json have whole requests",
        "--io FILE names a file with it (--reference-io for the reference), else NAME.io.json beside NAME.cu is taken",
    )
