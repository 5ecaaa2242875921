"""Why a kernel did not pass, at the lines of its source; every line that the submission may have written is marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kernel_eval_client.agents.wording import of_tools
from kernel_eval_client.explain import Spot, excerpt, spots
from kernel_eval_client.quoted import lines, named, quoted
from kernel_eval_client.result import Result

_BUILD_FAILED = "Error building extension"
_BUILT_LINE = re.compile(
    r"^(?P<file>[^\s:()]+\.(?:cuh?|cpp|cc|hp?p?))(?:\((?P<nvcc>\d+)\)|:(?P<host>\d+)(?::\d+)?) *: (?:fatal )?"
    r"(?P<message>error\b.*)\n(?P<text>.*)$",
    re.MULTILINE,
)
_LINES = 12
_BUILD_ERRORS = 3
_SPOTS = 3


class Built(NamedTuple):
    """An error in a file that the build made of a string in the source: `line` is that file's."""

    file: str
    line: int
    message: str
    text: str


def told(found: Result, source: str, reference: str) -> Iterator[str]:
    """The headline, then each line that is at fault with its neighbours; as lines."""
    error = of_tools(found.error or "", compared=found.reference is not None)
    headline, *rest = lines(error)
    yield quoted(headline, 400)
    of, text = ("reference, ", reference) if found.verdict == "reference_failed" else ("", source)
    if _BUILD_FAILED in error and (built := _built(error)):
        for one in built:
            yield from _in_source(one, text)
        return
    at = spots(error)
    for spot in at[:_SPOTS]:
        yield f"{of}line {spot.line}:"
        if spot.message not in headline:
            yield quoted(spot.message, 200)
        yield from (quoted(line, 120) for line in excerpt(text, spot))
    if not at:
        yield from (quoted(line, 160) for line in rest[: _LINES - 1])


def _built(error: str) -> list[Built]:
    found = [
        Built(one["file"].rpartition("/")[2], int(one["nvcc"] or one["host"]), one["message"], _text(one["text"]))
        for one in _BUILT_LINE.finditer(error)
    ]
    return list({(one.file, one.line): one for one in reversed(found)}.values())[::-1][:_BUILD_ERRORS]


def _in_source(one: Built, source: str) -> Iterator[str]:
    """At the line of the source that has the same text, where there is just one."""
    same = [number for number, line in enumerate(source.splitlines(), 1) if one.text and line.strip() == one.text]
    made = "" if one.file.endswith(("h", "hpp")) else "the generated "
    place = f"line {one.line} of {made}{named(one.file)}"
    yield f"line {same[0]} ({place}):" if len(same) == 1 else f"{place}, not of the source:"
    yield quoted(one.message, 200)
    if len(same) == 1:
        yield from (quoted(line, 120) for line in excerpt(source, Spot(same[0], one.message)))
    elif one.text:
        yield quoted(one.text, 120)


def _text(line: str) -> str:
    """What the compiler shows of the file; the host's puts the number before it."""
    return re.sub(r"^ *\d+ \| ", "", line).strip()
