"""The findings of compute-sanitizer, in words. They count as much as a wrong result, and the page says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.typed_members import JsonObject, members, object_or_empty, objects_in_list

CLEAN, FINDINGS = "clean", "findings"
MEANS = {
    "memcheck": "accesses out of bounds or misaligned",
    "racecheck": "races in shared memory",
    "initcheck": "reads of device memory that nothing has set",
    "synccheck": "barriers that not all threads reach",
}
MAX_FINDINGS = 12
"""Maximum findings of a tool on the page."""


@dataclass(frozen=True)
class Finding:
    """One finding, in words."""

    kind: str
    place: str
    threads: str
    count: str
    message: str


@dataclass(frozen=True)
class Tool:
    """One tool: what it checks, its outcome, its findings and how many more there are."""

    name: str
    means: str
    became: str
    findings: list[Finding]
    more: int


@dataclass(frozen=True)
class Sanitized:
    """`sentence` summarises the outcome, `tone` its severity."""

    sentence: str
    tone: str
    tools: list[Tool]


def error_summary(kernel: JsonObject) -> str | None:
    """The tools that found errors, with their counts, from `kernel_exec_result`; None without errors or without a
    run."""
    counts = {name: _errors(tool) for name, tool in _tools(kernel).items() if tool.get("status") == FINDINGS}
    counts_text = ", ".join(f"{words.count(count)} by {name}" for name, count in counts.items())
    return f"compute-sanitizer found errors in it: {counts_text}" if counts_text else None


def sanitized(kernel: JsonObject) -> Sanitized | None:
    """The findings in `kernel_exec_result`; None where the request did not ask for them."""
    sanitizer = kernel.get("sanitizer")
    if not isinstance(sanitizer, Mapping):
        return None
    tools = [_tool(name, tool) for name, tool in _tools(kernel).items()]
    if errors := error_summary(kernel):
        return Sanitized(f"{errors}. They count as much as a wrong result, whatever the verdict is.", "bad", tools)
    if sanitizer.get("status") == CLEAN:
        return Sanitized("compute-sanitizer found nothing wrong in the calls that it watched.", "good", tools)
    why = words.sentence(str(sanitizer.get("reason") or "no reason was given"))
    return Sanitized(f"compute-sanitizer was not run, or not to its end: {why}", "ours", tools)


def _tools(kernel: JsonObject) -> dict[str, JsonObject]:
    return members(object_or_empty(kernel.get("sanitizer")).get("tools"))


def _whole_number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def _errors(tool: JsonObject) -> int:
    listed = sum(_whole_number(each.get("count"), 1) for each in objects_in_list(tool.get("findings")))
    return listed + _whole_number(tool.get("findings_omitted"), 0)


def _tool(name: str, tool: JsonObject) -> Tool:
    findings, status = objects_in_list(tool.get("findings")), tool.get("status")
    if status == FINDINGS:
        became = words.counted(_errors(tool), "error")
    else:
        became = "nothing found" if status == CLEAN else f"not run: {tool.get('reason') or 'no reason was given'}"
    more = max(0, len(findings) - MAX_FINDINGS) + _whole_number(tool.get("findings_omitted"), 0)
    return Tool(name, MEANS.get(name, ""), became, [_finding(each) for each in findings[:MAX_FINDINGS]], more)


def _finding(finding: JsonObject) -> Finding:
    line, file = finding.get("line"), finding.get("file")
    place = words.NONE if line is None else f"line {line} of {file or 'the source'}"
    threads = ", ".join(f"{name} {finding[name]}" for name in ("block", "thread") if finding.get(name)) or words.NONE
    kernel = f" in {finding['kernel']}" if finding.get("kernel") else ""
    kind, message = str(finding.get("kind") or words.NONE), str(finding.get("message") or "")
    return Finding(
        kind,
        place + kernel,
        threads,
        words.count(_whole_number(finding.get("count"), 1)),
        message if message != kind else "",
    )
