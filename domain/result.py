"""What a job found: a status for each kernel, how right, how fast, how measured."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from domain.listing import PROFILE, Listing, NoListing, ProfilerReport

CANDIDATE, REFERENCE = "candidate", "reference"
"""The sides of a job; a kernel that is judged alone is the candidate."""


class Status(StrEnum):
    """The verdict about one kernel. Every value but PASSED is a failure of the kernel, none is one of the service."""

    PASSED = "passed"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    CONTRACT_MISMATCH = "contract_mismatch"
    REFERENCE_FAILED = "reference_failed"


@dataclass(frozen=True)
class RuntimeStats:
    """Times of one kernel's calls in ms, unrounded; `std` is the sample standard deviation."""

    mean: float = 0.0
    std: float = 0.0
    min: float = 0.0
    max: float = 0.0
    median: float = 0.0
    percentile_95: float = 0.0
    percentile_99: float = 0.0


@dataclass(frozen=True)
class Timing:
    """How fast, and how that was measured.

    `latency_ms` is the referee's own window divided by its calls; `stats` describe single calls and come from the
    runner's events only where their sum fits that window (`distribution`: events, else windows; none where there is one
    number alone, a bound or a single call's time, which all of them repeat). `single_call_ms` is a call by itself (None
    where not measured), `launch_overhead_correction_us` what was taken off each call because launches are that much
    slower in this process than on this card as a rule, `launches` a call's by the runner's own count (None where not
    known), `relative_ci` half the 95 % interval of `latency_ms` relative to it, with what it may differ by in another
    process of this card (None where unknown), `stop_reason` why no more windows were taken, `gpu_state` the state of
    the GPU around them. `window_ms` is the time of a call in each window, in order, for a picture of them: of many
    windows some, evenly, and seven digits; `excluded_windows` are the places in it of those that were disturbed. Both
    sides of a comparison have the same windows there, side by side. `baseline_from_cache`: null windows without the
    kernel's process were those of a job a moment ago, not shot for this one. `per_process_ms` is the time in each of
    the processes that the kernel was judged in, where there were several: then all figures are of them together
    (`profiling.results.multi_process`).
    """

    method: str
    stats: RuntimeStats
    latency_ms: float
    calls_per_window: int
    windows: int
    calls: int
    resolution_us: float
    distribution: str
    cache: str
    flags: list[str] = field(default_factory=list)
    single_call_ms: float | None = None
    launch_overhead_correction_us: float = 0.0
    launches: int | None = None
    relative_ci: float | None = None
    stop_reason: str | None = None
    gpu_state: dict[str, Any] | None = None
    window_ms: list[float] = field(default_factory=list)
    excluded_windows: list[int] = field(default_factory=list)
    per_process_ms: list[float] = field(default_factory=list)
    baseline_from_cache: bool = False


@dataclass(frozen=True)
class Comparison:
    """Candidate against reference over every output of every compared call.

    `weak_reference` names trivial answers that the reference could not tell from right ones at this tolerance;
    `precision_check` holds both errors against the reference in float64, where that could be run. `layout` has a
    sentence for each returned output whose strides are not the reference's. `mismatch_map` is a map of the wrong
    elements of the first wrong call (`validation.compare.mismatch_map`); None where nothing is wrong, or not element by
    element.
    """

    passed: bool
    calls: int
    calls_passed: int
    max_abs_diff: float
    max_rel_diff: float
    mean_abs_diff: float
    mismatch_count: int
    element_count: int
    atol: float
    rtol: float
    message: str | None = None
    first_mismatch: dict[str, Any] | None = None
    weak_reference: list[str] = field(default_factory=list)
    precision_check: dict[str, Any] | None = None
    strict: dict[str, Any] | None = None
    layout: list[str] = field(default_factory=list)
    mismatch_map: dict[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """Everything found about one kernel.

    `roofline` is where its time lies beneath the card's measured rates (`profiling.roofline.intensity`); None where
    those are not known. `launches` is what its calls launch by its own process's word, where that was asked for:
    information, no finding. `digest` is the kernel's (`domain.kernel`), `listings` its code as text where that was
    asked for. `profile` is the report of the profiler that read its counters, `sanitizer` what compute-sanitizer found
    (docs/api.md), each where it was asked for; by its own process tree's word, both.
    """

    status: Status
    kernel_type: str
    compiled: bool = False
    message: str | None = None
    log: str = ""
    output: str = ""
    entry: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)
    timing: Timing | None = None
    roofline: dict[str, Any] | None = None
    comparison: Comparison | None = None
    launches: dict[str, Any] | None = None
    digest: str | None = None
    listings: list[Listing | NoListing] | None = None
    profile: ProfilerReport | NoListing | None = None
    sanitizer: dict[str, Any] | None = None

    @property
    def artifacts(self) -> list[Listing | ProfilerReport | NoListing] | None:
        """All that is kept beside the result, and what could not be had; None where nothing was asked for."""
        profile = [self.profile] if self.profile is not None else []
        return None if self.listings is None and not profile else [*(self.listings or ()), *profile]

    def without_texts(self, reason: str) -> Outcome:
        """The same, with nothing kept beside the result, and that as the reason."""
        listings, profile = self.listings, self.profile
        if listings is not None:
            listings = [
                NoListing(one.form, reason, one.kernel) if isinstance(one, Listing) else one for one in listings
            ]
        if isinstance(profile, ProfilerReport):
            profile = NoListing(PROFILE, reason)
        return replace(self, listings=listings, profile=profile)


@dataclass(frozen=True)
class Speedup:
    """Reference time over candidate time, from paired windows, with a 95 % bootstrap interval."""

    ratio: float
    ci_low: float
    ci_high: float
    verdict: str


@dataclass(frozen=True)
class Report:
    """A finished job: the kernel's outcome, the reference's where there was one, and where it ran.

    `budget` is its name and what it left out (`domain/budget.py`). `spent_s` is what judging took of the request's
    `timeout`, and `built_s` building: not told, and nothing where that is not known.
    """

    outcome: Outcome
    environment: dict[str, Any]
    reference: Outcome | None = None
    speedup: Speedup | None = None
    device_metrics: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    spent_s: float = 0.0
    built_s: float = 0.0

    @property
    def texts(self) -> dict[str, bytes]:
        """What is kept of both kernels, compressed, by side and name: `candidate/add.ptx`."""
        sides = {CANDIDATE: self.outcome, REFERENCE: self.reference}
        return {
            f"{side}/{one.name}": one.packed
            for side, outcome in sides.items()
            for one in (outcome.artifacts if outcome is not None else None) or ()
            if not isinstance(one, NoListing)
        }

    def without_texts(self, reason: str) -> Report:
        """The same, with nothing kept beside it, and that as the reason."""
        reference = self.reference.without_texts(reason) if self.reference is not None else None
        return replace(self, outcome=self.outcome.without_texts(reason), reference=reference)

    def _speedup_unavailable_reason(self) -> str:
        """Why there is none, and what helps."""
        if self.outcome.status is not Status.PASSED:
            return "only times of right answers are compared"
        if self.outcome.timing is None:
            return "the kernel was not timed"
        return (
            "what is left of the reference's windows when their overhead is taken off cannot be told from zero: give "
            "it more work a call, raise num_trials, or run on a machine that does nothing else"
        )

    def body(self, job_id: str) -> dict[str, Any]:
        """The original service's answer, with ours added; JSON-ready."""
        environment = self.environment
        body: dict[str, Any] = {
            "job_id": job_id,
            "status": "success",
            "verdict": self.outcome.status.value,
            "pod_name": environment.get("host"),
            "pod_ip": environment.get("address"),
            "kernel_exec_result": _exec_result(self.outcome, environment),
            "environment": environment,
        }
        if environment.get("gpu_type"):
            body["gpu_type"] = environment["gpu_type"]
        if self.reference is not None:
            timing = self.reference.timing
            body["ref_runtime"] = asdict(timing.stats if timing else RuntimeStats())
            body["ref_result"] = _exec_result(self.reference, environment)
            body["speedup"] = asdict(self.speedup) if self.speedup else None
            body["speedup_unavailable_reason"] = None if self.speedup else self._speedup_unavailable_reason()
        if self.budget is not None:
            body["budget"] = self.budget
        if self.device_metrics is not None:
            body["kernel_exec_result"]["metadata"]["device_metrics"] = self.device_metrics
        writable: dict[str, Any] = _writable(body)
        return writable


def _writable(value: Any) -> Any:
    """The same with null for every number that JSON does not have, and without the half characters UTF-8 does not."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case str() if not value.isascii():
            return value.encode(errors="replace").decode()
        case dict():
            return {_writable(key): _writable(item) for key, item in value.items()}
        case list() | tuple():
            return [_writable(item) for item in value]
    return value


def first_line(text: Any, most: int = 300) -> str:
    """Of an error or a reason: the first line that says something, at most so long."""
    lines = [line.strip() for line in str(text or "").splitlines()]
    line = next((line for line in lines if line), "")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _right(status: Status) -> bool | None:
    """None where nobody can tell, as it cannot be run here."""
    return None if status is Status.UNSUPPORTED else status is Status.PASSED


def _exec_result(outcome: Outcome, environment: dict[str, Any]) -> dict[str, Any]:
    timing, comparison = outcome.timing, outcome.comparison
    detail = "\n".join(part for part in (outcome.message, outcome.log) if part) or None
    result: dict[str, Any] = {
        "status": outcome.status.value,
        "compiled": outcome.compiled,
        "correctness": _right(outcome.status),
        "runtime": timing.stats.mean if timing else 0.0,
        "compilation_error": detail if not outcome.compiled else None,
        "validation_error": detail if outcome.compiled and outcome.status is not Status.PASSED else None,
        "profiling_error": None if timing else outcome.message or "not timed",
        "output": outcome.output,
        "timing": asdict(timing) if timing else None,
        "roofline": outcome.roofline,
        "comparison": asdict(comparison) if comparison else None,
        "inputs": outcome.inputs,
        "build": outcome.build,
        "launches": outcome.launches,
        "artifacts": None if outcome.artifacts is None else [one.told() for one in outcome.artifacts],
        "metadata": {
            "gpu_id": environment.get("gpu_id"),
            "gpu_type": environment.get("gpu_type"),
            "cuda_version": environment.get("cuda_version"),
            "kernel_name": outcome.entry,
            "kernel_type": outcome.kernel_type,
            "digest": outcome.digest,
        },
    }
    if outcome.sanitizer is not None:
        result["sanitizer"] = outcome.sanitizer
    if timing:
        result["runtime_stats"] = asdict(timing.stats)
    return result
