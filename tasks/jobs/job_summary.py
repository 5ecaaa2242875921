"""The summary of a completed job, in its record: what lists show without reading the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from domain.flags.codes import FlagCode
from domain.result import first_line
from domain.wire import Wire


@dataclass(frozen=True)
class Summary(Wire):
    """Summary of a completed job for lists. `kernel` and `reference_kernel` name entry points.

    `relative_ci` is the relative confidence interval of the time, `headroom` the time's ratio to the least time of the
    work; `error` is the first line of the failure, or None. `fixed_outputs_pass`: outputs that ignore all inputs would
    pass too.
    """

    verdict: str
    kernel: str | None = None
    device: str | None = None
    latency_ms: float | None = None
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    flag_count: int = 0
    candidate: str | None = None
    reference: str | None = None
    inputs_replayed: bool = False
    relative_ci: float | None = None
    error: str | None = None
    headroom: float | None = None
    fixed_outputs_pass: bool = False
    reference_kernel: str | None = None
    worker_lacks: str | None = None

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Summary:
        """The summary of a completed job's HTTP body."""
        kernel, environment = body["kernel_exec_result"], body.get("environment") or {}
        metadata, timing, speedup = kernel.get("metadata") or {}, kernel.get("timing") or {}, body.get("speedup") or {}
        reference = (body.get("ref_result") or {}).get("metadata") or {}
        weak_reference = (kernel.get("comparison") or {}).get("weak_reference") or ()
        return cls(
            verdict=body["verdict"],
            worker_lacks=kernel.get("worker_lacks"),
            kernel=metadata.get("kernel_name"),
            device=environment.get("gpu_name") or environment.get("device"),
            latency_ms=timing.get("latency_ms"),
            ratio=speedup.get("ratio"),
            ci_low=speedup.get("ci_low"),
            ci_high=speedup.get("ci_high"),
            flag_count=len(timing.get("flags") or ()),
            candidate=metadata.get("digest"),
            reference=reference.get("digest"),
            reference_kernel=reference.get("kernel_name"),
            inputs_replayed=bool((kernel.get("inputs") or {}).get("inputs_replayed")),
            relative_ci=timing.get("relative_ci"),
            headroom=(kernel.get("headroom") or {}).get("ratio"),
            fixed_outputs_pass=any(flag["code"] == FlagCode.FIXED_OUTPUTS_PASS for flag in weak_reference),
            error=first_line(kernel.get("compilation_error") or kernel.get("validation_error")) or None,
        )
