"""The service's result for a kernel, with types; `Result.raw` is the JSON as the service sent it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from kernel_eval_client.artifact import Artifact
from kernel_eval_client.baseline import BaselineResult
from kernel_eval_client.case_result import CaseResult
from kernel_eval_client.device_metrics import DeviceMetrics
from kernel_eval_client.flag import FIXED_OUTPUTS_PASS, Flag
from kernel_eval_client.headroom import Headroom
from kernel_eval_client.machine_code import MachineCode
from kernel_eval_client.sanitizer import Sanitizer
from kernel_eval_client.timing import RuntimeStats, Speedup, Timing, known_fields
from kernel_eval_client.typed_members import member, objects_in_list

PASSED = "passed"
Verdict = Literal[
    "passed",
    "compile_error",
    "runtime_error",
    "wrong_result",
    "timeout",
    "crashed",
    "out_of_memory",
    "unsupported",
    "contract_mismatch",
    "reference_failed",
]
"""About a kernel. A service newer than this client may have others, which come as they are."""


class ResponseError(ValueError):
    """The JSON is no result of this service."""


@dataclass(frozen=True)
class RobustnessFailure:
    """The kernel failed on inputs that the task never draws, where the reference is right; its verdict stands.

    `status` is "wrong_result", or how the kernel failed; there are no counts then.
    """

    distribution: str
    status: str
    message: str
    mismatch_count: int = 0
    element_count: int = 0
    first_mismatch: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Comparison:
    """Candidate against reference over every output of every compared call."""

    passed: bool
    calls: int = 0
    calls_passed: int = 0
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    mean_abs_diff: float | None = None
    mismatch_count: int = 0
    element_count: int = 0
    atol: float | None = None
    rtol: float | None = None
    message: str | None = None
    first_mismatch: Mapping[str, Any] | None = None
    weak_reference: Sequence[Flag] = ()
    precision_check: Mapping[str, Any] | None = None
    strict: Mapping[str, Any] | None = None
    layout: Sequence[Flag] = ()
    mismatch_map: Mapping[str, Any] | None = None
    robustness: Sequence[RobustnessFailure] = ()
    beyond_tolerance: Sequence[Flag] = ()

    @property
    def fixed_outputs_pass(self) -> Flag | None:
        """The flag that outputs fixed beforehand would pass: a speed-up says nothing. None without it."""
        return next((flag for flag in self.weak_reference if flag.code == FIXED_OUTPUTS_PASS), None)

    @property
    def precision_finding(self) -> Flag | None:
        """The evidence for a lower precision than the output's dtype; None if there is none."""
        finding = member(self.precision_check, "finding")
        return Flag.from_dict(finding) if isinstance(finding, Mapping) else None


@dataclass(frozen=True)
class KernelResult:
    """Everything about one kernel. `runtime` is the mean ms per call, None when it was not timed."""

    status: str
    compiled: bool
    correctness: bool | None
    runtime: float | None
    timing: Timing | None
    comparison: Comparison | None
    compilation_error: str | None
    validation_error: str | None
    profiling_error: str | None
    output: str
    inputs: Mapping[str, Any]
    build: Mapping[str, Any]
    launches: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    roofline: Mapping[str, Any] | None = None
    """Where its time lies beneath the card's measured rates; None where those are not known."""

    @property
    def machine_code(self) -> Sequence[MachineCode]:
        """Registers, memory and occupancy of each compiled kernel, as far as the build reports them."""
        return MachineCode.all_of(self.build, str(self.metadata.get("kernel_name") or "its kernel"))

    @property
    def flags(self) -> Sequence[Flag]:
        """The flags of its own time; `Result.flags` has all."""
        return self.timing.flags if self.timing else ()

    @property
    def error(self) -> str | None:
        """The reason why it did not compile or pass; None if it passed."""
        return self.compilation_error or self.validation_error

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> KernelResult:
        """Reads `kernel_exec_result` or `ref_result`. Raises KeyError or TypeError for other JSON."""
        timing, comparison = wire.get("timing"), wire.get("comparison")
        if timing is not None:
            stats = RuntimeStats(**known_fields(RuntimeStats, timing.get("stats") or {}))
            flags = Flag.all_of(timing.get("flags"))
            timing = Timing(**{**known_fields(Timing, timing), "stats": stats, "flags": flags})
        if comparison is not None:
            names = ("weak_reference", "layout", "beyond_tolerance")
            listed = {name: Flag.all_of(comparison.get(name)) for name in names}
            failed = objects_in_list(member(comparison, "robustness", "failed"))
            failures = tuple(RobustnessFailure(**known_fields(RobustnessFailure, each)) for each in failed)
            known = known_fields(Comparison, comparison)
            comparison = Comparison(**{**known, **listed, "robustness": failures})
        return cls(
            status=wire["status"],
            compiled=wire["compiled"],
            correctness=wire["correctness"],
            runtime=timing.stats.mean if timing is not None else None,
            timing=timing,
            comparison=comparison,
            compilation_error=wire.get("compilation_error"),
            validation_error=wire.get("validation_error"),
            profiling_error=wire.get("profiling_error"),
            output=wire.get("output") or "",
            inputs=wire.get("inputs") or {},
            build=wire.get("build") or {},
            launches=wire.get("launches"),
            metadata=wire.get("metadata") or {},
            roofline=wire.get("roofline"),
        )


@dataclass(frozen=True)
class Result:
    """One verdict. Only comparisons have `reference` and `speedup`; `raw` is the response body.

    `budget["skipped_checks"]` lists the checks that were left out. `reused_from` names the earlier job whose result
    this is. `explanation` is the verdict in one sentence, `report` the path of the HTML report, `next` what to do next;
    all are None if the service lacks them. `name` is the submission's label. `speedup_unavailable_reason` says why a
    comparison has no `speedup`.
    """

    job_id: str
    verdict: Verdict
    kernel: KernelResult
    reference: KernelResult | None
    speedup: Speedup | None
    environment: Mapping[str, Any]
    gpu_type: str | None
    failed_attempts: Sequence[Mapping[str, Any]]
    raw: Mapping[str, Any] = field(repr=False)
    budget: Mapping[str, Any] = field(default_factory=dict)
    reused_from: Mapping[str, Any] | None = None
    explanation: str | None = None
    report: str | None = None
    speedup_unavailable_reason: str | None = None
    next: str | None = None
    name: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the kernel ran and, in a comparison, all its outputs are correct."""
        return self.verdict == PASSED

    @property
    def judged(self) -> bool:
        """Whether the verdict says something about the kernel: False where the reference failed, or where a kernel is
        `unsupported` because the worker lacks something. `worker_lacks` says so; no worker with a GPU lacks one.
        """
        lacks = (self.raw.get("kernel_exec_result") or {}).get("worker_lacks", "gpu")
        unjudged = lacks == "part" or (lacks == "gpu" and not self.environment.get("gpu_name"))
        return self.verdict != "reference_failed" and not (self.verdict == "unsupported" and unjudged)

    @property
    def runtime_ms(self) -> float | None:
        """Mean ms per call; None when it was not timed."""
        return self.kernel.runtime

    @property
    def error(self) -> str | None:
        """The reason why it did not pass; None if it passed."""
        return self.kernel.error

    @property
    def fixed_outputs_pass(self) -> Flag | None:
        """The comparison's flag of that code: the speed-up counts as unknown (docs/rewards.md)."""
        return self.kernel.comparison.fixed_outputs_pass if self.kernel.comparison else None

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """Its artifacts, unavailable ones too; `Client.artifact` fetches a text, `artifact_bytes` any of them."""
        return Artifact.all_of(self.raw)

    @property
    def device_metrics(self) -> DeviceMetrics | None:
        """The hardware counters of both sides; None if the request did not ask for `device_metrics`."""
        return DeviceMetrics.from_wire(self.kernel.metadata.get("device_metrics"))

    @property
    def sanitizer(self) -> Sanitizer | None:
        """The report of compute-sanitizer about the kernel; None if the request did not ask to `sanitize`."""
        return Sanitizer.from_wire(self.raw["kernel_exec_result"].get("sanitizer"))

    @property
    def headroom(self) -> Headroom:
        """How far the kernel's time is from the least time of its work."""
        return Headroom.of(self.raw["kernel_exec_result"])

    @property
    def baselines(self) -> Sequence[BaselineResult]:
        """The forms of the reference that were timed; empty if the request named none in `baselines`."""
        return BaselineResult.all_of(self.raw)

    @property
    def qualification(self) -> Mapping[str, Any] | None:
        """Whether the kernel is `fit` to be merged, a `sentence`, and the `checks`; None unless `qualify` asked."""
        return self.raw.get("qualification")

    @property
    def confirmation(self) -> Mapping[str, Any] | None:
        """Whether an earlier verdict and speed-up stand (docs/api.md, "Confirming"); None if this job confirms none."""
        return self.raw.get("confirmation")

    @property
    def cases(self) -> Sequence[CaseResult]:
        """Each visible case; empty for a job without cases."""
        return CaseResult.all_of(self.raw)

    @property
    def hidden_cases(self) -> Mapping[str, int]:
        """`count`, `judged` and `passed` of the hidden cases; empty for a job without cases."""
        summary: Mapping[str, Any] = self.raw.get("cases_summary") or {}
        return summary.get("hidden") or {}

    @property
    def flags(self) -> Sequence[Flag]:
        """All that qualifies the verdict and the times, each with the `kernel` that it is about.

        A service without that list gives those of the kernel's time, which are always in `kernel.flags`.
        """
        listed = self.raw.get("flags")
        return Flag.all_of(listed) if isinstance(listed, list) else self.kernel.flags

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Result:
        """Reads the result in a submission's response or in a job. Raises ResponseError for other JSON."""
        try:
            reference, speedup = wire.get("ref_result"), wire.get("speedup")
            return cls(
                job_id=wire["job_id"],
                verdict=wire["verdict"],
                kernel=KernelResult.from_dict(wire["kernel_exec_result"]),
                reference=None if reference is None else KernelResult.from_dict(reference),
                speedup=None if speedup is None else Speedup(**known_fields(Speedup, speedup)),
                environment=wire.get("environment") or {},
                gpu_type=wire.get("gpu_type"),
                failed_attempts=tuple(wire.get("failed_attempts") or ()),
                raw=wire,
                budget=wire.get("budget") or {},
                reused_from=wire.get("reused_from"),
                explanation=wire.get("explanation"),
                report=wire.get("report"),
                speedup_unavailable_reason=wire.get("speedup_unavailable_reason"),
                next=wire.get("next"),
                name=wire.get("name"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ResponseError(f"this is no result of a kernel evaluation service: {error!r}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the whole result as JSON; `load` reads it."""
        Path(path).write_text(json.dumps(self.raw, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Result:
        """Reads a file of `save`. Raises OSError, or ValueError (also ResponseError) for another file."""
        wire = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(wire, dict):
            raise ResponseError(f"{path} holds no JSON object")
        return cls.from_dict(wire)

    def to_dict(self) -> dict[str, Any]:
        """One flat row of plain values, the same columns for every result: `pandas.DataFrame(r.to_dict() for r in …)`.

        Times are in ms, and upper bounds where `time_bounded` or `ref_time_bounded`; None is what was not measured. A
        speed-up of which only a bound is known is None, with the bound in `speedup_ci_low` or `speedup_ci_high`.
        """
        kernel, timing, comparison = self.kernel, self.kernel.timing, self.kernel.comparison
        stats = timing.stats if timing else None
        reference = self.reference.timing if self.reference else None
        return {
            "job_id": self.job_id,
            "verdict": self.verdict,
            "passed": self.passed,
            "compiled": kernel.compiled,
            "kernel_type": kernel.metadata.get("kernel_type"),
            "kernel_name": kernel.metadata.get("kernel_name"),
            "error": self.error,
            "runtime_ms": kernel.runtime,
            "median_ms": stats.median if stats else None,
            "std_ms": stats.std if stats else None,
            "percentile_95_ms": stats.percentile_95 if stats else None,
            "latency_ms": timing.latency_ms if timing else None,
            "relative_ci": timing.relative_ci if timing else None,
            "headroom": self.headroom.ratio,
            "method": timing.method if timing else None,
            "calls": timing.calls if timing else None,
            "time_bounded": timing.bounded if timing else None,
            "flag_count": len(self.flags),
            "ref_runtime_ms": reference.stats.mean if reference else None,
            "ref_time_bounded": reference.bounded if reference else None,
            "speedup": self.speedup.measured if self.speedup else None,
            "speedup_ci_low": self.speedup.ci_low if self.speedup else None,
            "speedup_ci_high": self.speedup.ci_high if self.speedup else None,
            "speedup_verdict": self.speedup.verdict if self.speedup else None,
            "speedup_unavailable_reason": self.speedup_unavailable_reason,
            "max_abs_diff": comparison.max_abs_diff if comparison else None,
            "max_rel_diff": comparison.max_rel_diff if comparison else None,
            "mismatch_count": comparison.mismatch_count if comparison else None,
            "element_count": comparison.element_count if comparison else None,
            "robustness_failures": len(comparison.robustness) if comparison else None,
            "weak_reference": bool(comparison.weak_reference) if comparison else None,
            "fixed_outputs_pass": self.fixed_outputs_pass is not None if comparison else None,
            "inputs_replayed": kernel.inputs.get("inputs_replayed"),
            "device": self.environment.get("device"),
            "gpu_type": self.gpu_type,
            "host": self.environment.get("host"),
            "build_s": kernel.build.get("seconds"),
            "device_s": self.environment.get("device_seconds"),
            "failed_attempts": len(self.failed_attempts),
            "budget": self.budget.get("name"),
            "sanitizer": sanitizer.status if (sanitizer := self.sanitizer) else None,
            "reused": self.reused_from is not None,
        }
