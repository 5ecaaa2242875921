"""The findings of compute-sanitizer. They count as much as a wrong result, and the page says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.pages import words


def error_summary(kernel: Mapping[str, Any]) -> str | None:
    """The tools that found errors, with their counts, from `kernel_exec_result`; None without errors or without a
    run."""
    tools = (kernel.get("sanitizer") or {}).get("tools") or {}
    counts = {name: error_count(tool) for name, tool in tools.items() if tool["status"] == "findings"}
    counts_text = ", ".join(f"{words.count(count)} by {name}" for name, count in counts.items())
    return f"compute-sanitizer found errors in it: {counts_text}" if counts_text else None


def error_count(tool: Mapping[str, Any]) -> int:
    """The errors that one tool found, those that its report omits included."""
    return sum(int(finding["count"]) for finding in tool["findings"]) + int(tool["findings_omitted"])
