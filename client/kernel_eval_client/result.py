"""What the service found about a kernel, typed; the whole answer stays at hand as `Result.raw`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from kernel_eval_client.artifact import Artifact
from kernel_eval_client.machine_code import MachineCode

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

BOUNDED = "the time is an upper bound"
"""What a flag says of such a time."""


class AnswerError(ValueError):
    """The JSON is no result of this service."""


def _known(cls: type[Any], wire: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: wire[each.name] for each in fields(cls) if each.name in wire}


@dataclass(frozen=True)
class RuntimeStats:
    """Times of single calls in ms."""

    mean: float = 0.0
    std: float = 0.0
    min: float = 0.0
    max: float = 0.0
    median: float = 0.0
    percentile_95: float = 0.0
    percentile_99: float = 0.0


@dataclass(frozen=True)
class Timing:
    """How fast and how that was measured. `trusted_ms` is by the referee's clock; the rest is in docs/api.md."""

    method: str
    trusted_ms: float
    stats: RuntimeStats = field(default_factory=RuntimeStats)
    calls_per_window: int = 0
    windows: int = 0
    calls: int = 0
    resolution_us: float | None = None
    distribution: str = ""
    cache: str = ""
    flags: Sequence[str] = ()
    single_call_ms: float | None = None
    launch_shift_us: float | None = None
    launches: int | None = None
    precision: float | None = None
    stopped_by: str | None = None
    card: Mapping[str, Any] | None = None
    window_ms: Sequence[float] = ()
    left_out: Sequence[int] = ()

    @property
    def bounded(self) -> bool:
        """The kernel was too short to be measured: its times are upper bounds."""
        return any(BOUNDED in flag for flag in self.flags)


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
    weak_reference: Sequence[str] = ()
    precision: Mapping[str, Any] | None = None
    strict: Mapping[str, Any] | None = None
    layout: Sequence[str] = ()
    where: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Speedup:
    """Reference time over candidate time with its 95 % interval; `high` None where there is no upper end.

    Where one of the two times is too short to be measured, all that is known is a `bound`: `ratio` repeats it then.
    """

    ratio: float
    low: float
    high: float | None
    verdict: Literal["faster", "slower", "not_distinguishable"]

    @property
    def bound(self) -> Literal["at_least", "at_most"] | None:
        """What `ratio` is: a bound for the speed-up, or None where it was measured."""
        if self.high is None:
            return "at_least" if 0 < self.low == self.ratio else None
        return "at_most" if self.low == 0 and self.high == self.ratio else None

    @property
    def measured(self) -> float | None:
        """The ratio; None where it is only a bound."""
        return None if self.bound else self.ratio


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

    @property
    def machine_code(self) -> Sequence[MachineCode]:
        """What each of its kernels needs, as far as the build tells."""
        return MachineCode.all_of(self.build, str(self.metadata.get("kernel_name") or "its kernel"))

    @property
    def error(self) -> str | None:
        """Why it did not compile or pass; None when it passed."""
        return self.compilation_error or self.validation_error

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> KernelResult:
        """From `kernel_exec_result` or `ref_result`; raises KeyError or TypeError where it is none."""
        timing, comparison = wire.get("timing"), wire.get("comparison")
        if timing is not None:
            timing = Timing(
                **{**_known(Timing, timing), "stats": RuntimeStats(**_known(RuntimeStats, timing.get("stats") or {}))}
            )
        return cls(
            status=wire["status"],
            compiled=wire["compiled"],
            correctness=wire["correctness"],
            runtime=timing.stats.mean if timing is not None else None,
            timing=timing,
            comparison=None if comparison is None else Comparison(**_known(Comparison, comparison)),
            compilation_error=wire.get("compilation_error"),
            validation_error=wire.get("validation_error"),
            profiling_error=wire.get("profiling_error"),
            output=wire.get("output") or "",
            inputs=wire.get("inputs") or {},
            build=wire.get("build") or {},
            launches=wire.get("launches"),
            metadata=wire.get("metadata") or {},
        )


@dataclass(frozen=True)
class Result:
    """One verdict. `reference` and `speedup` only of comparisons; `raw` is the answer as it came.

    `budget` has in `left_out` what was not looked at; `reused_from` names the job that the answer was given to first.
    `told` is the verdict in a sentence, `report` the path of the page for a person; None of a service without.
    `no_speedup` says why a comparison has no `speedup`.
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
    told: str | None = None
    report: str | None = None
    no_speedup: str | None = None

    @property
    def passed(self) -> bool:
        """The kernel ran and, in a comparison, all its outputs are right."""
        return self.verdict == PASSED

    @property
    def runtime_ms(self) -> float | None:
        """Mean ms per call; None when it was not timed."""
        return self.kernel.runtime

    @property
    def error(self) -> str | None:
        """Why it did not pass; None when it did."""
        return self.kernel.error

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """What became of the `artifacts` that were asked for; `Client.artifact` gets a text."""
        return Artifact.all_of(self.raw)

    @property
    def flags(self) -> Sequence[str]:
        """All that qualifies the verdict and the times, each sentence with whose it is: `the reference: …`.

        A service without that list gives those of the kernel's time, which are always in `kernel.timing.flags`.
        """
        if isinstance(told := self.raw.get("flags"), list):
            return tuple(map(str, told))
        return self.kernel.timing.flags if self.kernel.timing else ()

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Result:
        """From the answer of a submission, or `result` of a job; raises AnswerError where it is none."""
        try:
            reference, speedup = wire.get("ref_result"), wire.get("speedup")
            return cls(
                job_id=wire["job_id"],
                verdict=wire["verdict"],
                kernel=KernelResult.from_dict(wire["kernel_exec_result"]),
                reference=None if reference is None else KernelResult.from_dict(reference),
                speedup=None if speedup is None else Speedup(**_known(Speedup, speedup)),
                environment=wire.get("environment") or {},
                gpu_type=wire.get("gpu_type"),
                failed_attempts=tuple(wire.get("failed_attempts") or ()),
                raw=wire,
                budget=wire.get("budget") or {},
                reused_from=wire.get("reused_from"),
                told=wire.get("told"),
                report=wire.get("report"),
                no_speedup=wire.get("no_speedup"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerError(f"this is no result of a kernel evaluation service: {error!r}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """The whole answer as JSON; `load` reads it."""
        Path(path).write_text(json.dumps(self.raw, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Result:
        """What `save` wrote; raises OSError, or ValueError (AnswerError too) for a file with something else."""
        wire = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(wire, dict):
            raise AnswerError(f"{path} holds no JSON object")
        return cls.from_dict(wire)

    def to_dict(self) -> dict[str, Any]:
        """One flat row of plain values, the same columns for every result: `pandas.DataFrame(r.to_dict() for r in …)`.

        Times are in ms, and upper bounds where `time_bounded` or `ref_time_bounded`; None is what was not measured. A
        speed-up of which only a bound is known is None, with the bound in `speedup_low` or `speedup_high`.
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
            "trusted_ms": timing.trusted_ms if timing else None,
            "precision": timing.precision if timing else None,
            "method": timing.method if timing else None,
            "calls": timing.calls if timing else None,
            "time_bounded": timing.bounded if timing else None,
            "flags": len(self.flags),
            "ref_runtime_ms": reference.stats.mean if reference else None,
            "ref_time_bounded": reference.bounded if reference else None,
            "speedup": self.speedup.measured if self.speedup else None,
            "speedup_low": self.speedup.low if self.speedup else None,
            "speedup_high": self.speedup.high if self.speedup else None,
            "speedup_verdict": self.speedup.verdict if self.speedup else None,
            "no_speedup": self.no_speedup,
            "max_abs_diff": comparison.max_abs_diff if comparison else None,
            "max_rel_diff": comparison.max_rel_diff if comparison else None,
            "mismatch_count": comparison.mismatch_count if comparison else None,
            "element_count": comparison.element_count if comparison else None,
            "weak_reference": bool(comparison.weak_reference) if comparison else None,
            "known_beforehand": kernel.inputs.get("known_beforehand"),
            "device": self.environment.get("device"),
            "gpu_type": self.gpu_type,
            "host": self.environment.get("host"),
            "build_s": kernel.build.get("seconds"),
            "device_s": self.environment.get("device_seconds"),
            "failed_attempts": len(self.failed_attempts),
            "budget": self.budget.get("name"),
            "reused": self.reused_from is not None,
        }
