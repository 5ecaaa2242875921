"""What compute-sanitizer found in a kernel, in words: findings count as much as a wrong result, and are told so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.untyped import Told, members, obj, objects

CLEAN, FINDINGS = "clean", "findings"
MEANS = {
    "memcheck": "accesses out of bounds or misaligned",
    "racecheck": "races in shared memory",
    "initcheck": "reads of device memory that nothing has set",
    "synccheck": "barriers that not all threads reach",
}
SHOWN = 12
"""Findings of a tool."""


@dataclass(frozen=True)
class Finding:
    """One, in words."""

    kind: str
    place: str
    who: str
    count: str
    message: str


@dataclass(frozen=True)
class Tool:
    """One tool: what it looks for, what became of it, its findings and how many more there are."""

    name: str
    means: str
    became: str
    findings: list[Finding]
    more: int


@dataclass(frozen=True)
class Sanitized:
    """`sentence` says what became of all, `tone` how grave that is."""

    sentence: str
    tone: str
    tools: list[Tool]


def found(kernel: Told) -> str | None:
    """Of `kernel_exec_result`: which tools found how much; None where nothing was found, or nobody asked."""
    counts = {name: _errors(tool) for name, tool in _tools(kernel).items() if tool.get("status") == FINDINGS}
    told = ", ".join(f"{words.count(count)} by {name}" for name, count in counts.items())
    return f"compute-sanitizer found errors in it: {told}" if told else None


def sanitized(kernel: Told) -> Sanitized | None:
    """Of `kernel_exec_result`; None where nobody asked."""
    told = kernel.get("sanitizer")
    if not isinstance(told, Mapping):
        return None
    tools = [_tool(name, tool) for name, tool in _tools(kernel).items()]
    if errors := found(kernel):
        return Sanitized(f"{errors}. They count as much as a wrong result, whatever the verdict is.", "bad", tools)
    if told.get("status") == CLEAN:
        return Sanitized("compute-sanitizer found nothing wrong in the calls that it watched.", "good", tools)
    why = words.sentence(str(told.get("reason") or "no reason was given"))
    return Sanitized(f"compute-sanitizer was not run, or not to its end: {why}", "ours", tools)


def _tools(kernel: Told) -> dict[str, Told]:
    return members(obj(kernel.get("sanitizer")).get("tools"))


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _errors(tool: Told) -> int:
    listed = sum(_whole(each.get("count"), 1) for each in objects(tool.get("findings")))
    return listed + _whole(tool.get("findings_omitted"), 0)


def _tool(name: str, tool: Told) -> Tool:
    findings, status = objects(tool.get("findings")), tool.get("status")
    if status == FINDINGS:
        became = words.counted(_errors(tool), "error")
    else:
        became = "nothing found" if status == CLEAN else f"not run: {tool.get('reason') or 'no reason was given'}"
    more = max(0, len(findings) - SHOWN) + _whole(tool.get("findings_omitted"), 0)
    return Tool(name, MEANS.get(name, ""), became, [_finding(each) for each in findings[:SHOWN]], more)


def _finding(told: Told) -> Finding:
    line, file = told.get("line"), told.get("file")
    place = words.NONE if line is None else f"line {line} of {file or 'the source'}"
    who = ", ".join(f"{name} {told[name]}" for name in ("block", "thread") if told.get(name)) or words.NONE
    kernel = f" in {told['kernel']}" if told.get("kernel") else ""
    kind, message = str(told.get("kind") or words.NONE), str(told.get("message") or "")
    return Finding(
        kind, place + kernel, who, words.count(_whole(told.get("count"), 1)), message if message != kind else ""
    )
