"""What compute-sanitizer finds in the candidate: one more call beneath each of its tools, whatever the verdict was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from domain.device_metrics import SANITIZER_SECONDS
from profiling.sanitizer_report import MAX_BYTES, TOOLS, found
from tasks import instruments
from tasks.inspection import Inspection, NotInspected, content, spent

NO_SANITIZER = "compute-sanitizer is not on this worker: install NVIDIA's package cuda-sanitizer, or a CUDA toolkit"
LOG = "sanitizer.txt"
SINGLY = ("/usr/bin/env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")
"""Every tensor by itself: within torch's own blocks of memory a write past a tensor's end is no error."""


def look_for_errors(inspection: Inspection) -> dict[str, Any]:
    """The answer's `sanitizer`. Raises JobCancelled."""
    tool = instruments.compute_sanitizer()
    reason = inspection.why_not() or (NO_SANITIZER if tool is None else None)
    if tool is None or reason is not None:
        return {"status": "unavailable", "reason": reason, "tools": {}, "seconds": 0.0}
    started = time.monotonic()
    tools = {name: _checked(inspection, tool, name) for name in TOOLS}
    states = [told["status"] for told in tools.values()]
    status = next((each for each in ("findings", "clean") if each in states), "unavailable")
    reasons = list(dict.fromkeys(told["reason"] for told in tools.values() if told["reason"]))
    return {"status": status, "reason": "; ".join(reasons) or None, "tools": tools, "seconds": spent(started)}


def _checked(inspection: Inspection, tool: Path, name: str) -> dict[str, Any]:
    contender = inspection.candidate
    log = contender.folder / LOG
    log.unlink(missing_ok=True)
    command = [
        *(*SINGLY, str(tool), "--tool", name, "--log-file", LOG, "--print-limit", "1000"),
        # Libraries ask the driver for what it may not have, and take the refusal as the answer.
        *("--report-api-errors", "no", "--target-processes", "application-only"),
    ]
    try:
        _, failure = inspection.call(contender, command, SANITIZER_SECONDS / len(TOOLS), warm_up=0)
        report = content(log, MAX_BYTES)
        told = found((report or b"").decode(errors="replace"))
    except NotInspected as why:
        return {"status": "unavailable", "reason": str(why), "findings": [], "findings_left_out": 0}
    except ValueError as error:
        told_why = failure or f"the sanitizer's report cannot be read: {error}"
        return {"status": "unavailable", "reason": told_why, "findings": [], "findings_left_out": 0}
    return told
