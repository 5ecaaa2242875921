"""Which answers the same work gets again: those that would come out alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.flags import CUT_SHORT
from domain.result import Status
from sandbox.supervisor.machine_faults import may_pass_again

RAN = frozenset({Status.PASSED, Status.WRONG_RESULT})
NOTHING_RAN = frozenset({Status.COMPILE_ERROR, Status.CONTRACT_MISMATCH})
"""A crash, a timeout, a lack of memory may have been the moment's: they are in neither."""
TEXTS = ("compilation_error", "validation_error")
STOPPED = "timeout"
"""`profiling.stats.stopping_rule.Stop`, which the API's image has not."""


def reusable(answer: Mapping[str, Any]) -> bool:
    """Of a whole answer. One that lacks what was asked for is none to who asks again, unless nothing could be run."""
    verdict, kernel = answer["verdict"], answer["kernel_exec_result"]
    if verdict in NOTHING_RAN:
        return not may_pass_again("\n".join(str(kernel.get(field) or "") for field in TEXTS))
    metrics = (kernel.get("metadata") or {}).get("device_metrics") or {}
    sanitizer = kernel.get("sanitizer") or {}
    sides = [metrics.get("candidate"), metrics.get("reference"), *sanitizer.get("tools", {}).values()]
    lacking = any(part.get("status") == "unavailable" for part in [metrics, sanitizer, *sides] if part)
    return verdict in RAN and not lacking and not any(map(_cut_short, (kernel, answer.get("ref_result") or {})))


def _cut_short(side: Mapping[str, Any]) -> bool:
    """Whether the request's `timeout` ended something of a kernel's judging: another request may give more."""
    timing = side.get("timing") or {}
    tried = (side.get("inputs") or {}).get("distributions") or {}
    flags = [*timing.get("flags", ()), *(tried.get("skipped") or {}).values()]
    return timing.get("stop_reason") == STOPPED or any(flag["code"] in CUT_SHORT for flag in flags)
