"""Where in the source an error is: the lines that a compiler's text or a traceback names, with their neighbours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_eval_client.sanitizer import Finding

AROUND = 2
MOST = 5

_COMPILER = re.compile(
    r"^kernel\.(?:cu|py)\((\d+)\)(?::| ) *(?:fatal |catastrophic )?(error\b.*|warning\b.*)$", re.MULTILINE
)
_TRACEBACK = re.compile(r'^ *File "kernel\.(?:py|cu)", line (\d+)', re.MULTILINE)
_LAST_LINE = re.compile(r"^\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Spot:
    """A line of the source, counted from 1, and what is said of it."""

    line: int
    message: str


def spots(error: str) -> list[Spot]:
    """The lines of the submission that its error text names, at most five, each once.

    Of a compiler every error; of a traceback the innermost line, which is where it went wrong.
    """
    found = [Spot(int(line), message) for line, message in _COMPILER.findall(error) if message.startswith("error")]
    first, _, _ = error.partition("The above exception was the direct cause")
    if not found and (lines := _TRACEBACK.findall(first)):
        said = _LAST_LINE.findall(first)
        found = [Spot(int(lines[-1]), said[-1] if said else error.splitlines()[0])]
    once = {spot.line: spot for spot in reversed(found)}
    return sorted(once.values(), key=lambda spot: spot.line)[:MOST]


def excerpt(source: str, spot: Spot) -> list[str]:
    """The line and two on either side, numbered, an arrow at the one that is meant; empty where it is not there."""
    lines = source.splitlines()
    if not 1 <= spot.line <= len(lines):
        return []
    shown = range(max(1, spot.line - AROUND), min(len(lines), spot.line + AROUND) + 1)
    return [f"{'>' if number == spot.line else ' '} {number:4} | {lines[number - 1]}" for number in shown]


def finding_excerpt(source: str, finding: Finding) -> list[str]:
    """The sanitizer's line in the source as it was sent; empty where it is none of its lines."""
    return excerpt(source, Spot(finding.line, finding.kind)) if finding.line is not None and finding.in_source else []
