"""Runs compute-sanitizer on the candidate: one more call under each of its tools, whatever the verdict was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from domain.device_metrics import SANITIZER_SECONDS
from domain.result import first_line
from profiling.sanitizer_report import MAX_CHARS, SanitizerTool, ToolReport, described, read
from tasks.diagnostics.tool_run import Inspection, NotInspected, read_output, remove_stale, seconds_since
from tasks.node import tool_lookup

NO_SANITIZER = "compute-sanitizer is not on this worker: install NVIDIA's package cuda-sanitizer, or a CUDA toolkit"
LOG = ".txt"
SINGLY = ("/usr/bin/env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")
"""Disables torch's caching allocator: within its blocks, a write past a tensor's end is no error."""


def run_sanitizer(inspection: Inspection) -> dict[str, Any]:
    """The report's `sanitizer`. Raises JobCancelled."""
    tool = tool_lookup.compute_sanitizer()
    reason = inspection.unavailable_reason() or (NO_SANITIZER if tool is None else None)
    if tool is None or reason is not None:
        return {"status": "unavailable", "reason": reason, "tools": {}, "seconds": 0.0}
    started = time.monotonic()
    report = described({check: _run_tool(inspection, tool, check) for check in SanitizerTool})
    return {**report, "seconds": seconds_since(started)}


def _run_tool(inspection: Inspection, tool: Path, check: SanitizerTool) -> ToolReport:
    kernel_run = inspection.candidate
    command = [
        *(*SINGLY, str(tool), "--tool", check.value, "--log-file", f"{check}{LOG}", "--print-limit", "1000"),
        # Libraries probe the driver for optional features, so refused driver calls are no errors.
        *("--report-api-errors", "no", "--target-processes", "application-only"),
    ]
    remove_stale(kernel_run.folder, f"{check}{LOG}")
    try:
        printed, failure = inspection.call(kernel_run, command, SANITIZER_SECONDS / len(SanitizerTool), warm_up=0)
        report = read_output(kernel_run.folder / f"{check}{LOG}", MAX_CHARS)
        if report is None:
            return ToolReport("unavailable", failure or first_line(printed) or "it left no report")
        findings = read(kernel_run.redact_paths(report.decode(errors="replace")))
        if failure is not None and findings.status == "clean":
            return ToolReport("unavailable", f"the kernel failed under the tool: {failure}")
        return findings
    except (NotInspected, ValueError) as why:
        return ToolReport("unavailable", str(why))
