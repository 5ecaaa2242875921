"""Parses the resource report that CUDA's assembler writes for `--ptxas-options=-v`."""

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
    """The report of each kernel, in the log's order.

    `name` (in the machine code), `arch`, `registers` a thread, bytes of local memory and spills a thread, and bytes of
    static shared memory a block.
    """
    reports = []
    entries = list(_ENTRY.finditer(log))
    # A log may have no entry: a compilation that is not for a GPU never reaches the assembler.
    for entry, end in zip(entries, [*(following.start() for following in entries[1:]), len(log)], strict=False):
        part = log[entry.end() : end]
        figures = {figure: pattern.search(part) for figure, pattern in _FIGURES.items()}
        numbers = {figure: int(match[1]) if match else 0 for figure, match in figures.items()}
        reports.append({"name": entry[1], "arch": entry[2], **numbers})
    return reports


def strip_report(log: str) -> str:
    """The log without the assembler's report; its warnings and advice stay."""
    return _LINE.sub("", log)
