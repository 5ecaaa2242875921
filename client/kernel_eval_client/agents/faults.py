"""The reason why a kernel did not pass, with lines of its source. Lines that may quote the submission are marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kernel_eval_client.agents.wording import for_tools
from kernel_eval_client.explain import ErrorLine, error_lines, excerpt
from kernel_eval_client.result import Result
from kernel_eval_client.untrusted_text import lines, named, quoted

_BUILD_FAILED = "Error building extension"
_BUILT_LINE = re.compile(
    r"^(?P<file>[^\s:()]+\.(?:cuh?|cpp|cc|hp?p?))(?:\((?P<nvcc>\d+)\)|:(?P<host>\d+)(?::\d+)?) *: (?:fatal )?"
    r"(?P<message>error\b.*)\n(?P<text>.*)$",
    re.MULTILINE,
)
_LINES = 12
_BUILD_ERRORS = 3
_ERROR_LINES = 3


class BuildError(NamedTuple):
    """A compiler's error in a file that the build generated from a string in the source; `line` counts in that file."""

    file: str
    line: int
    message: str
    text: str


def describe(result: Result, source: str, reference: str) -> Iterator[str]:
    """Yields the error's first line, then each line at fault with its neighbours."""
    error = for_tools(result.error or "", compared=result.reference is not None)
    headline, *details = lines(error)
    yield quoted(headline, 400)
    prefix, text = ("reference, ", reference) if result.verdict == "reference_failed" else ("", source)
    if _BUILD_FAILED in error and (build_errors := _build_errors_in(error)):
        for build_error in build_errors:
            yield from _in_source(build_error, text)
        return
    locations = error_lines(error)
    for location in locations[:_ERROR_LINES]:
        yield f"{prefix}line {location.line}:"
        if location.message not in headline:
            yield quoted(location.message, 200)
        yield from (quoted(line, 120) for line in excerpt(text, location))
    if not locations:
        yield from (quoted(line, 160) for line in details[: _LINES - 1] if line not in headline)


def _build_errors_in(error: str) -> list[BuildError]:
    errors = [
        BuildError(
            match["file"].rpartition("/")[2],
            int(match["nvcc"] or match["host"]),
            match["message"],
            _text(match["text"]),
        )
        for match in _BUILT_LINE.finditer(error)
    ]
    return list({(match.file, match.line): match for match in reversed(errors)}.values())[::-1][:_BUILD_ERRORS]


def _in_source(error: BuildError, source: str) -> Iterator[str]:
    """The error at the line of the source with the same text, if exactly one line has it."""
    matching_lines = [
        number for number, line in enumerate(source.splitlines(), 1) if error.text and line.strip() == error.text
    ]
    generated = "" if error.file.endswith(("h", "hpp")) else "the generated "
    location = f"line {error.line} of {generated}{named(error.file)}"
    yield f"line {matching_lines[0]} ({location}):" if len(matching_lines) == 1 else f"{location}, not of the source:"
    yield quoted(error.message, 200)
    if len(matching_lines) == 1:
        yield from (quoted(line, 120) for line in excerpt(source, ErrorLine(matching_lines[0], error.message)))
    elif error.text:
        yield quoted(error.text, 120)


def _text(line: str) -> str:
    """The line of the file that the compiler quotes, without the line number of the host compiler."""
    return re.sub(r"^ *\d+ \| ", "", line).strip()
