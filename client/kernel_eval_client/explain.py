"""Finds the lines of the source that a compiler's output or a traceback names, and quotes them with neighbours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_eval_client.sanitizer import Finding

CONTEXT_LINES = 2
MAXIMUM_ERRORS = 5

_COMPILER = re.compile(
    r"^kernel\.(?:cu|py)\((\d+)\)(?::| ) *(?:fatal |catastrophic )?(error\b.*|warning\b.*)$", re.MULTILINE
)
_TRACEBACK = re.compile(r'^ *File "kernel\.(?:py|cu)", line (\d+)', re.MULTILINE)
_LAST_LINE = re.compile(r"^\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class ErrorLine:
    """A line of the source, counted from 1, and the error message about it."""

    line: int
    message: str


def error_lines(error: str) -> list[ErrorLine]:
    """The lines of the submission that its error text names: at most five, each once, sorted.

    A compiler's output gives every error, a traceback its innermost line, which raised.
    """
    locations = [
        ErrorLine(int(line), message) for line, message in _COMPILER.findall(error) if message.startswith("error")
    ]
    first, _, _ = error.partition("The above exception was the direct cause")
    if not locations and (lines := _TRACEBACK.findall(first)):
        messages = _LAST_LINE.findall(first)
        locations = [ErrorLine(int(lines[-1]), messages[-1] if messages else error.splitlines()[0])]
    by_line = {location.line: location for location in reversed(locations)}
    return sorted(by_line.values(), key=lambda location: location.line)[:MAXIMUM_ERRORS]


def excerpt(source: str, location: ErrorLine) -> list[str]:
    """The line and two on either side, numbered, with an arrow at the line; [] if the source lacks it."""
    lines = source.splitlines()
    if not 1 <= location.line <= len(lines):
        return []
    numbers = range(max(1, location.line - CONTEXT_LINES), min(len(lines), location.line + CONTEXT_LINES) + 1)
    return [f"{'>' if number == location.line else ' '} {number:4} | {lines[number - 1]}" for number in numbers]


def finding_excerpt(source: str, finding: Finding) -> list[str]:
    """An excerpt at the finding's line; [] if the line is not in the submitted source."""
    return (
        excerpt(source, ErrorLine(finding.line, finding.kind)) if finding.line is not None and finding.in_source else []
    )
