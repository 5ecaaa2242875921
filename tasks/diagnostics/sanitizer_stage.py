"""What compute-sanitizer finds in the candidate: one more call beneath each of its tools, whatever the verdict was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from domain.device_metrics import SANITIZER_SECONDS
from domain.result import first_line
from profiling.sanitizer_report import MAX_CHARS, SanitizerTool, ToolReport, described, read
from tasks.diagnostics.tool_run import Inspection, NotInspected, clear_away, content, spent
from tasks.node import tool_lookup

NO_SANITIZER = "compute-sanitizer is not on this worker: install NVIDIA's package cuda-sanitizer, or a CUDA toolkit"
LOG = ".txt"
SINGLY = ("/usr/bin/env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")
"""Every tensor by itself: within torch's own blocks of memory a write past a tensor's end is no error."""


def look_for_errors(inspection: Inspection) -> dict[str, Any]:
    """The answer's `sanitizer`. Raises JobCancelled."""
    tool = tool_lookup.compute_sanitizer()
    reason = inspection.why_not() or (NO_SANITIZER if tool is None else None)
    if tool is None or reason is not None:
        return {"status": "unavailable", "reason": reason, "tools": {}, "seconds": 0.0}
    started = time.monotonic()
    told = described({check: _checked(inspection, tool, check) for check in SanitizerTool})
    return {**told, "seconds": spent(started)}


def _checked(inspection: Inspection, tool: Path, check: SanitizerTool) -> ToolReport:
    contender = inspection.candidate
    command = [
        *(*SINGLY, str(tool), "--tool", check.value, "--log-file", f"{check}{LOG}", "--print-limit", "1000"),
        # Libraries ask the driver for what it may not have, and take the refusal as the answer.
        *("--report-api-errors", "no", "--target-processes", "application-only"),
    ]
    clear_away(contender.folder, f"{check}{LOG}")
    try:
        printed, failure = inspection.call(contender, command, SANITIZER_SECONDS / len(SanitizerTool), warm_up=0)
        report = content(contender.folder / f"{check}{LOG}", MAX_CHARS)
        if report is None:
            return ToolReport("unavailable", failure or first_line(printed) or "it left no report")
        told = read(contender.redact_paths(report.decode(errors="replace")))
        if failure is not None and told.status == "clean":
            return ToolReport("unavailable", f"the kernel failed beneath it: {failure}")
        return told
    except (NotInspected, ValueError) as why:
        return ToolReport("unavailable", str(why))
