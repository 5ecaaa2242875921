"""Whether a result may be reused for the same work: only if another run would produce the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.fault import may_pass_again
from domain.flags.codes import CUT_SHORT
from domain.result import Status

RAN = frozenset({Status.PASSED, Status.WRONG_RESULT})
NOTHING_RAN = frozenset({Status.COMPILE_ERROR, Status.CONTRACT_MISMATCH})
"""Crashes, timeouts and lack of memory are in neither set, because they may not occur again."""
TEXTS = ("compilation_error", "validation_error")
STOPPED = "timeout"
"""`profiling.stats.stopping_rule.Stop`, which the API's image does not contain."""


def reusable(body: Mapping[str, Any]) -> bool:
    """Whether a complete result may be reused. It may not if requested parts are missing, unless no code could run."""
    verdict, kernel = body["verdict"], body["kernel_exec_result"]
    if verdict in NOTHING_RAN:
        return not may_pass_again("\n".join(str(kernel.get(field) or "") for field in TEXTS))
    metrics = (kernel.get("metadata") or {}).get("device_metrics") or {}
    sanitizer = kernel.get("sanitizer") or {}
    sides = [metrics.get("candidate"), metrics.get("reference"), *sanitizer.get("tools", {}).values()]
    incomplete = any(part.get("status") == "unavailable" for part in [metrics, sanitizer, *sides] if part)
    # Only `timeout` leaves a case of a right kernel without its time.
    untimed = verdict == Status.PASSED and any(
        case["timed"] and case["runtime_ms"] is None for case in body.get("cases") or ()
    )
    return (
        verdict in RAN
        and not incomplete
        and not untimed
        and not any(map(_cut_short, (kernel, body.get("ref_result") or {})))
    )


def _cut_short(side: Mapping[str, Any]) -> bool:
    """Whether the request's `timeout` shortened the evaluation of a kernel: another run may measure more."""
    timing = side.get("timing") or {}
    distributions = (side.get("inputs") or {}).get("distributions") or {}
    flags = [*timing.get("flags", ()), *(distributions.get("skipped") or {}).values()]
    return timing.get("stop_reason") == STOPPED or any(flag["code"] in CUT_SHORT for flag in flags)
