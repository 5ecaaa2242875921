"""The findings of compute-sanitizer in a kernel: by tool, with the lines of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.typed_members import number, objects_in_list, text, whole

SOURCES = (None, "kernel.cu", "kernel.py")
"""Names of the submission's own file in a build; None if the tool names no file."""
FINDINGS, CLEAN, UNAVAILABLE = "findings", "clean", "unavailable"


@dataclass(frozen=True)
class Finding:
    """One kind of error at one place, `count` times. `file` and `line` are None if the build has no line numbers."""

    kind: str
    kernel: str | None = None
    file: str | None = None
    line: int | None = None
    block: str | None = None
    thread: str | None = None
    message: str | None = None
    count: int = 1

    @property
    def in_source(self) -> bool:
        """Whether `line` belongs to the submitted source, and not to a file that the build generated."""
        return self.line is not None and self.file in SOURCES

    @property
    def place(self) -> str:
        """The place in words: line, kernel, and the first block and thread with the error."""
        parts = [f"line {self.line} of {self.file or 'the source'}"] if self.line is not None else []
        parts += [f"in {self.kernel}"] if self.kernel else []
        parts += [f"block {self.block}"] if self.block else []
        parts += [f"thread {self.thread}"] if self.thread else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Tool:
    """memcheck, racecheck, initcheck or synccheck: `clean`, `findings`, or `unavailable` with the reason."""

    name: str
    status: str
    reason: str | None = None
    findings: Sequence[Finding] = ()
    findings_omitted: int = 0

    @property
    def errors(self) -> int:
        """The number of errors, with repetitions; a lower bound."""
        return sum(each.count for each in self.findings) + self.findings_omitted


@dataclass(frozen=True)
class Sanitizer:
    """The report about the candidate. Findings do not change the verdict, but such a kernel is unsound."""

    status: str
    reason: str | None = None
    tools: Sequence[Tool] = ()
    seconds: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def tools_with_findings(self) -> Sequence[Tool]:
        """The tools with findings."""
        return [tool for tool in self.tools if tool.findings or tool.status == FINDINGS]

    @property
    def headline(self) -> str:
        """The report in one line: the errors of each tool, clean, or why it is unavailable."""
        if tools := self.tools_with_findings:
            return "found errors: " + ", ".join(f"{tool.errors} by {tool.name}" for tool in tools)
        if self.status == CLEAN:
            return f"clean ({', '.join(tool.name for tool in self.tools) or 'no tool is named'})"
        return f"unavailable: {self.reason or 'no reason is given'}"

    @classmethod
    def from_wire(cls, wire: Any) -> Sanitizer | None:
        """Reads `kernel_exec_result.sanitizer`; None if the request did not ask for it."""
        if not isinstance(wire, Mapping):
            return None
        tools = wire.get("tools")
        return cls(
            status=text(wire.get("status")) or UNAVAILABLE,
            reason=text(wire.get("reason")),
            tools=tuple(
                _tool(str(name), one)
                for name, one in (tools.items() if isinstance(tools, Mapping) else ())
                if isinstance(one, Mapping)
            ),
            seconds=number(wire.get("seconds")),
            raw=wire,
        )


def _tool(name: str, wire: Mapping[str, Any]) -> Tool:
    findings = [
        Finding(
            kind=text(each.get("kind")) or "?",
            kernel=text(each.get("kernel")),
            file=text(each.get("file")),
            line=whole(each.get("line")),
            block=text(each.get("block")),
            thread=text(each.get("thread")),
            message=text(each.get("message")),
            count=max(1, whole(each.get("count")) or 1),
        )
        for each in objects_in_list(wire.get("findings"))
    ]
    omitted = whole(wire.get("findings_omitted")) or 0
    return Tool(name, text(wire.get("status")) or UNAVAILABLE, text(wire.get("reason")), tuple(findings), omitted)
