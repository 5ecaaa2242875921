"""Reads what compute-sanitizer printed: findings by kind, kernel and line, each told once with how often it was seen.

The text comes from beside the submission's own processes, and may hold anything: its size and what is kept of it have
limits, and paths come down to file names. Format: Compute Sanitizer, CUDA 12 and 13, chapters on its four tools.
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
SAYS_CHARS = 480
LINE_CHARS = 4096
MAX_COUNT = 10**9


class SanitizerTool(StrEnum):
    """The checks of compute-sanitizer. Each is a run of its own."""

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


_PREFIX = "========="
_DETAIL = "    "
"""Under a finding's first line, the lines about it are indented."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d{1,12}) (?:errors?$|hazards? displayed\b)")
_NOTE = re.compile(
    r"COMPUTE-SANITIZER|[A-Z ]+ SUMMARY:|Program hit |Target application |Error: process |Error: Target "
)
"""Lines that report nothing of a kernel. API errors are among them: torch's start makes some that it expects, and what
a killed kernel leads to is not what it did."""
_NO_DETAIL = re.compile(
    r"(?:(?:Error|Warning): )?(?:Race reported|\(?.{0,40}Potential \w+ hazard|Leaked )", re.IGNORECASE
)
_AT = r"(?P<kernel>.{1,2048}?)\+0x[0-9a-f]{1,16}(?: in (?P<file>.{1,1024}?):(?P<line>\d{1,7})\b)?"
# All of them are matched where they must begin: a stranger's line with a thousand beginnings would take a minute.
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
    """What one tool found at one place; thread and block are those of the first time. `count`: times, or hazards."""

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
    """What one tool has to say. `reason`: why it has nothing, or why what it has may not be all."""

    status: str
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    findings_omitted: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "findings": [dict(vars(finding)) for finding in self.findings]}


def read(printed: str) -> ToolReport:
    """One run of one tool. Raises ValueError for a text that compute-sanitizer has not printed."""
    if len(printed) > MAX_CHARS:
        raise ValueError(f"{len(printed)} characters of compute-sanitizer, {MAX_CHARS} are read at most")
    lines = [line.removeprefix(_PREFIX)[:LINE_CHARS] for line in printed.splitlines() if line.startswith(_PREFIX)]
    if not lines:
        raise ValueError("compute-sanitizer has printed nothing")
    found = list(_findings(lines))
    summaries = [int(match[1]) for line in lines if (match := _SUMMARY.match(line.strip()))]
    grouped = _grouped(found)
    reason = _reason(lines, len(found), summaries)
    if not grouped:
        return ToolReport("unavailable" if reason else "clean", reason)
    return ToolReport("findings", reason, tuple(grouped[:MAX_FINDINGS]), max(len(grouped) - MAX_FINDINGS, 0))


def described(tools: Mapping[SanitizerTool, ToolReport]) -> dict[str, Any]:
    """The answer's `sanitizer`, without the seconds that it took: a finding of one tool is one of all, and what one
    could not say leaves the rest not clean."""
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


def _reason(lines: list[str], found: int, summaries: list[int]) -> str | None:
    if not summaries:
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"compute-sanitizer did not finish; it said last: {printable(last, KIND_CHARS)!r}"
    expected = sum(line.strip().startswith("Program hit ") for line in lines)
    unread = sum(summaries) - found - expected
    return (
        f"compute-sanitizer counted {sum(summaries)} errors, and {unread} of them are not told here"
        if unread > 0
        else None
    )


def _findings(lines: list[str]) -> Iterator[Finding]:
    """A finding is a line that is not indented, with indented ones that say where; races say it in the line itself."""
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
    said = [head, *details] if accesses else [kind, *details]
    return Finding(
        kind=kind,
        kernel=printable(outermost["kernel"], KERNEL_CHARS) if outermost else None,
        file=printable(PurePath(lined["file"]).name, FILE_CHARS) or None if lined and lined["file"] else None,
        line=int(lined["line"]) if lined and lined["line"] else None,
        block=by[2] if by else None,
        thread=by[1] if by else None,
        message=_says(said),
        count=min(sum(int(match[1]) for line in accesses for match in _HAZARDS.finditer(line)) or 1, MAX_COUNT),
    )


def _kind(head: str, accesses: list[str]) -> str:
    """Without what differs between two findings of a kind: places and addresses."""
    head = _ERROR.sub("", head)
    if accesses:
        before = re.split(r" between | detected ", head, maxsplit=1)[0]
        both = dict.fromkeys(match[1].capitalize() for line in accesses for match in _ACCESS.finditer(line))
        return printable(f"{before}: {' and '.join(both)} access", KIND_CHARS)
    return printable(_ADDRESS.sub("", head), KIND_CHARS)


def _says(lines: list[str]) -> str:
    """One line of what was printed, without frames of the host, addresses and folders."""
    kept = [line for line in lines if "Frame:" not in line and "backtrace" not in line]
    joined = ", ".join(text for line in kept if (text := _ADDRESS.sub("", line).strip()) != "Address")
    return printable(re.sub(r"(?<= in )\S*/", "", joined), SAYS_CHARS)


def _place(line: str) -> re.Match[str] | None:
    access = _ACCESS.search(line)
    start = 3 if line.startswith("at ") else access.end() if access else None
    return None if start is None else _PLACE.match(line, start) or _OLD_PLACE.match(line, start)


def _grouped(found: list[Finding]) -> list[Finding]:
    groups: dict[tuple[object, ...], Finding] = {}
    for one in found:
        first = groups.get(one.place)
        groups[one.place] = replace(first, count=min(first.count + one.count, MAX_COUNT)) if first else one
    return list(groups.values())
