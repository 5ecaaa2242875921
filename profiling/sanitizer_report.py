"""Parses the output of compute-sanitizer: findings by kind, kernel and line, each once with its count.

The text is untrusted, because the submission's processes can print into it. Its size and every field have limits, and
paths are cut to file names. Format: Compute Sanitizer, CUDA 12 and 13, chapters on its four tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from profiling.ncu.csv_report import printable

MAX_CHARS = 8 * 1024 * 1024
MAX_FINDINGS = 32
KIND_CHARS = 160
KERNEL_CHARS = 256
FILE_CHARS = 128
MESSAGE_CHARS = 480
LINE_CHARS = 4096
MAX_COUNT = 10**9


class SanitizerTool(StrEnum):
    """The tools of compute-sanitizer; each needs a separate run."""

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


_PREFIX = "========="
_DETAIL = "    "
"""Indentation of the lines that follow a finding's first line."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d{1,12}) (?:errors?$|hazards? displayed\b)")
_NOTE = re.compile(
    r"COMPUTE-SANITIZER|[A-Z ]+ SUMMARY:|Program hit |Target application |Error: process |Error: Target "
)
"""Lines that are no findings about a kernel. API errors are among them: torch causes some on purpose when it starts,
and others only follow from a kernel that was killed."""
_NO_DETAIL = re.compile(
    r"(?:(?:Error|Warning): )?(?:Race reported|\(?.{0,40}Potential \w+ hazard|Leaked )", re.IGNORECASE
)
_AT = r"(?P<kernel>.{1,2048}?)\+0x[0-9a-f]{1,16}(?: in (?P<file>.{1,1024}?):(?P<line>\d{1,7})\b)?"
# Every pattern is anchored: a hostile line with a thousand possible beginnings would otherwise take a minute.
_PLACE = re.compile(_AT)
_OLD_PLACE = re.compile(r"0x[0-9a-f]{1,16} in (?:(?P<file>[^:]{1,1024}):(?P<line>\d{1,7}):)?(?P<kernel>.{1,2048})$")
_FRAME = re.compile(r"Device Frame: ?" + _AT)
_THREAD = re.compile(r"by thread (\(\d{1,10},\d{1,10},\d{1,10}\)) in block (\(\d{1,10},\d{1,10},\d{1,10}\))")
_ACCESS = re.compile(r"\b(Read|Write|Atomic) (?:access|Thread \([\d, ]{1,40}\)) at ", re.IGNORECASE)
_HAZARDS = re.compile(r"\[(\d{1,12}) hazards?\]")
_ADDRESS = re.compile(r" ?(?:\bat )?(?<!\+)\b0x[0-9a-f]{5,16}\b")
_ERROR = re.compile(r"^error: ", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One finding at one place; thread and block are of its first occurrence. `count`: occurrences, or hazards."""

    kind: str
    kernel: str | None
    file: str | None
    line: int | None
    block: str | None
    thread: str | None
    message: str
    count: int = 1

    @property
    def place(self) -> tuple[object, ...]:
        return self.kind, self.kernel, self.file, self.line


@dataclass(frozen=True)
class ToolReport:
    """The result of one tool. `reason`: why it has none, or why its findings may be incomplete."""

    status: str
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    findings_omitted: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "findings": [dict(vars(finding)) for finding in self.findings]}


def read(printed: str) -> ToolReport:
    """Parses the output of one tool. Raises ValueError for a text that compute-sanitizer did not print."""
    if len(printed) > MAX_CHARS:
        raise ValueError(f"{len(printed)} characters of compute-sanitizer, {MAX_CHARS} are read at most")
    lines = [line.removeprefix(_PREFIX)[:LINE_CHARS] for line in printed.splitlines() if line.startswith(_PREFIX)]
    if not lines:
        raise ValueError("compute-sanitizer has printed nothing")
    findings = list(_findings(lines))
    summaries = [int(match[1]) for line in lines if (match := _SUMMARY.match(line.strip()))]
    grouped = _grouped(findings)
    reason = _reason(lines, len(findings), summaries)
    if not grouped:
        return ToolReport("unavailable" if reason else "clean", reason)
    return ToolReport("findings", reason, tuple(grouped[:MAX_FINDINGS]), max(len(grouped) - MAX_FINDINGS, 0))


def described(tools: Mapping[SanitizerTool, ToolReport]) -> dict[str, Any]:
    """The result's `sanitizer`, without its time. A finding of one tool makes the status "findings"; otherwise a tool
    without a result makes it "unavailable"."""
    statuses = {report.status for report in tools.values()}
    status = next(
        (one for one in ("findings", "unavailable") if one in statuses), "clean" if statuses else "unavailable"
    )
    missing = [f"{tool}: {report.reason}" for tool, report in tools.items() if report.status == "unavailable"]
    return {
        "status": status,
        "reason": "; ".join(missing) or (None if statuses else "no tool has run"),
        "tools": {tool.value: report.to_dict() for tool, report in tools.items()},
    }


def _reason(lines: list[str], parsed: int, summaries: list[int]) -> str | None:
    if not summaries:
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"compute-sanitizer did not finish; it said last: {printable(last, KIND_CHARS)!r}"
    expected = sum(line.strip().startswith("Program hit ") for line in lines)
    unread = sum(summaries) - parsed - expected
    return (
        f"compute-sanitizer counted {sum(summaries)} errors, and {unread} of them are not told here"
        if unread > 0
        else None
    )


def _findings(lines: list[str]) -> Iterator[Finding]:
    """The findings: a line that is not indented, with indented lines about the place; races name it in the line
    itself."""
    at = 0
    while at < len(lines):
        head, at = lines[at].strip(), at + 1
        start = at
        while at < len(lines) and lines[at].startswith(_DETAIL):
            at += 1
        details = [line.strip() for line in lines[start:at]]
        if not head or _NOTE.match(head):
            continue
        if any(_FRAME.match(line) or _place(line) for line in details) or _NO_DETAIL.match(head):
            yield _finding(head, details)


def _finding(head: str, details: list[str]) -> Finding:
    accesses = [line for line in (head, *details) if _ACCESS.search(line)]
    where = next(filter(None, (_place(line) for line in (head, *details))), None)
    frames = [match for line in details if (match := _FRAME.match(line))]
    lined = where if where and where["line"] else next((one for one in reversed(frames) if one["line"]), where)
    outermost = frames[-1] if frames else where
    by = next(filter(None, (_THREAD.match(line) for line in details)), None)
    kind = _kind(head, accesses)
    message = [head, *details] if accesses else [kind, *details]
    return Finding(
        kind=kind,
        kernel=printable(outermost["kernel"], KERNEL_CHARS) if outermost else None,
        file=printable(PurePath(lined["file"]).name, FILE_CHARS) or None if lined and lined["file"] else None,
        line=int(lined["line"]) if lined and lined["line"] else None,
        block=by[2] if by else None,
        thread=by[1] if by else None,
        message=_message(message),
        count=min(sum(int(match[1]) for line in accesses for match in _HAZARDS.finditer(line)) or 1, MAX_COUNT),
    )


def _kind(head: str, accesses: list[str]) -> str:
    """The kind of a finding, without places and addresses, which differ between two findings of a kind."""
    head = _ERROR.sub("", head)
    if accesses:
        before = re.split(r" between | detected ", head, maxsplit=1)[0]
        both = dict.fromkeys(match[1].capitalize() for line in accesses for match in _ACCESS.finditer(line))
        return printable(f"{before}: {' and '.join(both)} access", KIND_CHARS)
    return printable(_ADDRESS.sub("", head), KIND_CHARS)


def _message(lines: list[str]) -> str:
    """The printed lines as one, without host frames, addresses and folders."""
    relevant = [line for line in lines if "Frame:" not in line and "backtrace" not in line]
    joined = ", ".join(text for line in relevant if (text := _ADDRESS.sub("", line).strip()) != "Address")
    return printable(re.sub(r"(?<= in )\S*/", "", joined), MESSAGE_CHARS)


def _place(line: str) -> re.Match[str] | None:
    access = _ACCESS.search(line)
    start = 3 if line.startswith("at ") else access.end() if access else None
    return None if start is None else _PLACE.match(line, start) or _OLD_PLACE.match(line, start)


def _grouped(findings: list[Finding]) -> list[Finding]:
    groups: dict[tuple[object, ...], Finding] = {}
    for one in findings:
        first = groups.get(one.place)
        groups[one.place] = replace(first, count=min(first.count + one.count, MAX_COUNT)) if first else one
    return list(groups.values())
