"""What compute-sanitizer found in a kernel, tool by tool, at the lines of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.untyped import number, objects, text, whole

SOURCES = (None, "kernel.cu", "kernel.py")
"""What the submission's own file is called while it is built; without a name it is the only one."""
FINDINGS, CLEAN, UNAVAILABLE = "findings", "clean", "unavailable"


@dataclass(frozen=True)
class Finding:
    """One kind of error at one place; `count` is how often. `line` of `file`, where the kernel has its lines."""

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
        """Whether `line` is one of the source as it was sent, and not of a file that building it made."""
        return self.line is not None and self.file in SOURCES

    @property
    def place(self) -> str:
        """Where it is, in words: kernel, line, and the first block and thread that did it."""
        told = [f"line {self.line} of {self.file or 'the source'}"] if self.line is not None else []
        told += [f"in {self.kernel}"] if self.kernel else []
        told += [f"block {self.block}"] if self.block else []
        told += [f"thread {self.thread}"] if self.thread else []
        return ", ".join(told)


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
        """How many it found at least, repetitions counted."""
        return sum(each.count for each in self.findings) + self.findings_omitted


@dataclass(frozen=True)
class Sanitizer:
    """The whole answer, about the candidate alone. Findings change no verdict: a kernel with some is not sound."""

    status: str
    reason: str | None = None
    tools: Sequence[Tool] = ()
    seconds: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def found(self) -> Sequence[Tool]:
        """The tools that found something."""
        return [tool for tool in self.tools if tool.findings or tool.status == FINDINGS]

    @property
    def headline(self) -> str:
        """What became of it, in a line of ours."""
        if found := self.found:
            return "found errors: " + ", ".join(f"{tool.errors} by {tool.name}" for tool in found)
        if self.status == CLEAN:
            return f"clean ({', '.join(tool.name for tool in self.tools) or 'no tool is named'})"
        return f"unavailable: {self.reason or 'no reason is given'}"

    @classmethod
    def of(cls, wire: Any) -> Sanitizer | None:
        """Of `kernel_exec_result.sanitizer`, whatever it has; None where it was not asked for."""
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
        for each in objects(wire.get("findings"))
    ]
    omitted = whole(wire.get("findings_omitted")) or 0
    return Tool(name, text(wire.get("status")) or UNAVAILABLE, text(wire.get("reason")), tuple(findings), omitted)
