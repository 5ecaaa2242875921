"""Words and styles of the terminal's output."""

from __future__ import annotations

import re

GOOD, BAD, DIM = "bold green", "bold red", "dim"
SHORT = 72
REMARK = 200
"""Maximum length of an error in a table's last column, in characters: the cause may be at its end."""


_COMMANDS = {
    "/docs and /openapi.json have whole requests": "--io FILE names a file with it (--reference-io for the reference), "
    "else NAME.io.json next to NAME.cu is read",
    "Send the header `Authorization: Bearer <key>` with a key": "Set KERNEL_EVAL_API_KEY to a key",
    "`GET /health` lists": "`kernel-eval doctor` lists",
    "`GET /jobs`": "`kernel-eval list`",
    "`GET /job/<id>?wait=60`": "`kernel-eval wait JOB`",
    "`GET /job/<id>/artifacts`": "`kernel-eval artifacts JOB`",
    "Send it to `/compare` with a reference": "Give it to `kernel-eval compare` with a reference",
    "send it as `": "give `--type ",
    "Send it as the `kernel_type`": "Give as `--type` the one",
    "metadata (class_name, function_name)": "`--entry`",
    "in this field (Python": "(Python",
    "name it in metadata.function_name": "name it with `--entry`",
    "with its contract in `io`": "and its contract with `--io`",
}
"""By the service's name for a step, the command or the option that does it."""


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
    """The service's message, with commands and options in place of requests and fields."""
    for service, command in _COMMANDS.items():
        text = text.replace(service, command)
    return re.sub(r"`POST /job/([^/`]+)/again`", r"`kernel-eval again \1`", text)
