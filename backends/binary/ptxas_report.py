"""What CUDA's assembler says of the kernels it compiles when asked to (`--ptxas-options=-v`)."""

from __future__ import annotations

import re
from typing import Any

VERBOSE = "--ptxas-options=-v"

_LINE = re.compile(
    r"^(?:ptxas\s+(?:info\s*:|\.))?\s*"
    r"(?:\d+ bytes gmem|Compiling entry function|Function properties for|\d+ bytes stack frame|Used \d+ registers|"
    r"Compile time\b).*\n?",
    re.MULTILINE,
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_FIGURES = {
    "registers": re.compile(r"Used (\d+) registers"),
    "local_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
    "static_shared_bytes": re.compile(r"(\d+) bytes smem"),
}


def resources(log: str) -> list[dict[str, Any]]:
    """For each kernel its `name` in the machine code, `arch`, `registers` a thread, bytes of `local` memory and of
    spills a thread, bytes of static shared memory a block. In the log's order."""
    found = []
    entries = list(_ENTRY.finditer(log))
    # A log without an entry is none's fault: a compile that is not for a card ends before the assembler.
    for entry, end in zip(entries, [*(each.start() for each in entries[1:]), len(log)], strict=False):
        part = log[entry.end() : end]
        figures = {figure: pattern.search(part) for figure, pattern in _FIGURES.items()}
        numbers = {figure: int(match[1]) if match else 0 for figure, match in figures.items()}
        found.append({"name": entry[1], "arch": entry[2], **numbers})
    return found


def without(log: str) -> str:
    """The log without that report: its warnings stay, and its advice, such as of what is serialised."""
    return _LINE.sub("", log)
