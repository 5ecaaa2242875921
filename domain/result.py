"""The result of a job: a status for each kernel, correctness, times, and how they were measured."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from domain.determinism import Determinism
from domain.flags.codes import SPEEDUP_UNKNOWN
from domain.flags.flag import Flag
from domain.listing import PROFILE, Listing, NoListing, ProfilerReport

if TYPE_CHECKING:
    from domain.cases.case_result import CaseResults

CANDIDATE, REFERENCE = "candidate", "reference"
"""The sides of a job; a kernel that is judged alone is the candidate."""
LEAST_LOG = 8192
"""Characters of a log that stay in a result where the service has no room for more."""
DIFFERENCE = "both passes together, less the forward pass by itself"


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


class Lack(StrEnum):
    """What a worker lacks of what an UNSUPPORTED kernel needs: no fault of the kernel."""

    GPU = "gpu"
    PART = "part"


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
    """The time of one kernel, and how it was measured. Times are in ms a call, unless a name says otherwise.

    - `latency_ms`: time of the referee's windows divided by their calls.
    - `stats`: statistics of single calls. They come from the runner's events only if their sum fits the window.
    - `distribution`: source of `stats`: "events", "windows", or "none" if all of them repeat one number.
    - `single_call_ms`: time of a window of one call; None if not measured.
    - `launch_overhead_correction_us`: subtracted from each call, as launches are that much slower in this process than
      usual on this GPU.
    - `launches`: launches of a call, by the runner's own count; None if unknown.
    - `relative_ci`: half the 95 % interval of `latency_ms`, relative to it, including the spread between processes;
      None if unknown.
    - `stop_reason`: why no more windows were timed.
    - `gpu_state`: state of the GPU around the windows.
    - `window_ms`: time of a call in each window, in order, for a picture; an even selection if there are many.
    - `excluded_windows`: indexes in `window_ms` of disturbed windows. Both sides of a comparison have the same.
    - `per_process_ms`: time in each process, if there were several; all other figures then cover all of them
      (`profiling.results.multi_process`).
    - `baseline_from_cache`: an earlier job timed the isolated null windows.
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
    flags: list[Flag] = field(default_factory=list)
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
class RobustnessFailure:
    """The candidate failed on inputs beyond the task, where the reference is right (docs/correctness.md).

    - `distribution`: the inputs, by their name in `inputs.distributions`.
    - `status`: WRONG_RESULT, or how the candidate failed; the counts are then 0.
    - `mismatch_count`, `element_count`: wrong elements, and all that were judged.
    """

    distribution: str
    status: Status
    message: str
    mismatch_count: int = 0
    element_count: int = 0
    first_mismatch: dict[str, Any] | None = None


@dataclass(frozen=True)
class Robustness:
    """The candidate on inputs beyond the task, which do not decide the verdict."""

    failed: list[RobustnessFailure] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """Candidate against reference, over every output of every compared call.

    - `weak_reference`: trivial outputs that would pass against this reference at this tolerance.
    - `robustness`: failures on inputs beyond the task that leave the verdict as it is.
    - `precision_check`: errors of both kernels against the reference in float64; None if it could not run so.
    - `layout`: a flag for each returned output whose strides differ from the reference's.
    - `mismatch_map`: wrong elements of the first wrong call (`validation.compare.mismatch_map`); None if all are right
      or the outputs could not be compared by element.
    - `beyond_tolerance`: flags with what float64 says about few elements beyond tolerance; empty if there were none.
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
    weak_reference: list[Flag] = field(default_factory=list)
    precision_check: dict[str, Any] | None = None
    strict: dict[str, Any] | None = None
    layout: list[Flag] = field(default_factory=list)
    mismatch_map: dict[str, Any] | None = None
    robustness: Robustness = field(default_factory=Robustness)
    beyond_tolerance: list[Flag] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """The result of one kernel.

    - `worker_lacks`: why an UNSUPPORTED kernel was not judged; None if it is at fault itself.
    - `headroom`: its time over the least time of its work (`domain/speed/headroom.py`); None if not computed.
    - `roofline`: its time beside the GPU's measured rates (`profiling.roofline.intensity`); None if these are unknown.
    - `launches`: kernels that its calls launch, if the request asked. The runner itself reports them: no evidence.
    - `digest`: digest of the kernel (`domain.kernel`).
    - `listings`: its code as text, if the request asked.
    - `determinism`: whether equal inputs give equal bits, if the request asked.
    - `gradients`: what was compared and the time of each pass, if the request asked.
    - `profile`, `sanitizer`: reports of the profiler and of compute-sanitizer, if the request asked (docs/api.md). The
      submission's own process tree writes them: no evidence.
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
    headroom: dict[str, Any] | None = None
    comparison: Comparison | None = None
    launches: dict[str, Any] | None = None
    digest: str | None = None
    listings: list[Listing | NoListing] | None = None
    profile: ProfilerReport | NoListing | None = None
    sanitizer: dict[str, Any] | None = None
    determinism: Determinism | None = None
    gradients: Gradients | None = None
    worker_lacks: Lack | None = None

    @property
    def artifacts(self) -> list[Listing | ProfilerReport | NoListing] | None:
        """The artifacts stored beside the result, and reasons for missing ones; None if none were requested."""
        profile = [self.profile] if self.profile is not None else []
        return None if self.listings is None and not profile else [*(self.listings or ()), *profile]

    def without_texts(self, reason: str) -> Outcome:
        """The same, with nothing kept beside the result and the beginning of a long log, and that as the reason."""
        log = self.log if len(self.log) <= LEAST_LOG else f"{self.log[:LEAST_LOG]}\n(cut here: {reason})"
        listings, profile = self.listings, self.profile
        if listings is not None:
            listings = [
                NoListing(one.format, reason, one.kernel) if isinstance(one, Listing) else one for one in listings
            ]
        if isinstance(profile, ProfilerReport):
            profile = NoListing(PROFILE, reason)
        return replace(self, listings=listings, profile=profile, log=log)


@dataclass(frozen=True)
class Speedup:
    """Reference time over candidate time, from paired windows, with a 95 % bootstrap interval."""

    ratio: float
    ci_low: float
    ci_high: float
    verdict: str


@dataclass(frozen=True)
class Gradients:
    """The gradients of one side. All other figures of a result are of both passes together.

    - `compared`: the names of what is compared, in the order of the comparison's outputs.
    - `not_compared`: why other inputs and parameters are not compared.
    - `cotangent_scale`: the cotangents are standard normal times this.
    - `forward`: the time of the forward pass by itself, in which it makes its graph. `forward_speedup` is for the
      candidate's side; None where a flag of the forward pass says that it is unknown.
    """

    compared: list[str]
    not_compared: dict[str, str]
    cotangent_scale: float
    forward: Timing | None
    forward_speedup: Speedup | None = None

    def backward(self, together: Timing) -> tuple[float, float | None]:
        """Both passes' time less the forward's, and half its 95 % interval, in ms; None if one time has none."""
        forward = self.forward or together
        margins = [one.latency_ms * one.relative_ci for one in (together, forward) if one.relative_ci is not None]
        return together.latency_ms - forward.latency_ms, math.hypot(*margins) if len(margins) == 2 else None

    def to_dict(self, together: Timing | None) -> dict[str, Any]:
        """JSON-ready; a kernel whose both passes have no time has none of either."""
        forward = backward = None
        if together is not None and self.forward is not None:
            forward = asdict(self.forward)
            latency_ms, half_width_ms = self.backward(together)
            backward = {"latency_ms": latency_ms, "half_width_ms": half_width_ms, "method": DIFFERENCE}
        return {
            "compared": self.compared,
            "not_compared": self.not_compared,
            "cotangent_scale": self.cotangent_scale,
            "forward": forward,
            "backward": backward,
        }


def pass_speedups(reference: Outcome, candidate: Outcome) -> dict[str, Any]:
    """The speed-ups of the passes apart: the forward's from paired windows, the backward's from both differences.

    The backward's interval ends as both sides' intervals do; null where a difference may be zero or a flag says so.
    """
    times = [
        side.gradients.backward(side.timing) if side.gradients is not None and side.timing is not None else (0.0, None)
        for side in (reference, candidate)
    ]
    (reference_ms, reference_half), (candidate_ms, candidate_half) = times
    backward = None
    forward = candidate.gradients.forward if candidate.gradients is not None else None
    codes = {flag.code for timing in (candidate.timing, forward) if timing is not None for flag in timing.flags}
    if codes.isdisjoint(SPEEDUP_UNKNOWN) and candidate_ms > (candidate_half or 0.0) and reference_ms > 0:
        low = high = None
        if reference_half is not None and candidate_half is not None:
            low = max(reference_ms - reference_half, 0.0) / (candidate_ms + candidate_half)
            high = (reference_ms + reference_half) / (candidate_ms - candidate_half)
        backward = {"ratio": reference_ms / candidate_ms, "ci_low": low, "ci_high": high, "method": DIFFERENCE}
    speedup = candidate.gradients.forward_speedup if candidate.gradients is not None else None
    return {"forward": asdict(speedup) if speedup is not None else None, "backward": backward}


@dataclass(frozen=True)
class DeviceReport:
    """A job's time on the device, and what the driver reported meanwhile; part of the body's `environment`.

    - `held_s`, `windows_s`: seconds for which the job held the device, and seconds of its windows.
    - `multi_queue_roles`, `gpu_errors`: sides whose contexts had several hardware queues, and the card's errors or why
      they are unknown; both None where the job never had a GPU.
    - `reference_runner`: whether the reference's runner was kept from an earlier job (`warm`) or new (`fresh`); None
      without a reference.
    - `memory_arrangement`: how the job's calls shared the device's memory; None if the job never had the device.
    - `isolation`: whether the candidate's `process` was `fresh` or `used` by earlier jobs, and in
      `used_process_verdict` what a used one or a warm reference gave before; None if the job never had the device.
    """

    held_s: float = 0.0
    windows_s: float = 0.0
    multi_queue_roles: list[str] | None = None
    gpu_errors: list[dict[str, Any]] | dict[str, str] | None = None
    memory_arrangement: str | None = None
    reference_runner: str | None = None
    isolation: dict[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return {"device_seconds": known.pop("held_s"), "window_seconds": known.pop("windows_s")} | known


@dataclass(frozen=True)
class Report:
    """A finished job: the kernel's outcome, the reference's if there is one, and where it ran.

    - `environment`: host, device and versions, JSON-ready.
    - `cases`: results of the job's cases; the times and the speed-up are then geometric means over the visible ones.
    - `budget`: name of the budget and the checks that it skips (`domain/budget.py`).
    - `baselines`: times of other forms of the reference, JSON-ready; empty if the request named none
      (`domain/speed/baseline.py`).
    - `qualification`: whether the kernel is fit to be merged, if the request asked (`tasks.evaluation.qualification`).
    - `confirmation`: what it says about the earlier result that it was to confirm (`domain/speed/confirmation.py`).
    - `spent_s`, `built_s`: seconds of judging and of building; internal, 0 if unknown.
    """

    outcome: Outcome
    environment: dict[str, Any]
    reference: Outcome | None = None
    speedup: Speedup | None = None
    device_metrics: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    baselines: list[dict[str, Any]] = field(default_factory=list)
    qualification: dict[str, Any] | None = None
    confirmation: dict[str, Any] | None = None
    spent_s: float = 0.0
    built_s: float = 0.0
    device: DeviceReport = field(default_factory=DeviceReport)
    cases: CaseResults | None = None

    @property
    def texts(self) -> dict[str, bytes]:
        """Compressed artifacts of both kernels by side and name, such as `candidate/add.ptx`."""
        sides = {CANDIDATE: self.outcome, REFERENCE: self.reference}
        return {
            f"{side}/{one.name}": one.packed
            for side, outcome in sides.items()
            for one in (outcome.artifacts if outcome is not None else None) or ()
            if not isinstance(one, NoListing)
        }

    @property
    def long_logs(self) -> list[str]:
        """The logs that `without_texts` would cut."""
        logs = [outcome.log for outcome in (self.outcome, self.reference) if outcome is not None]
        return [log for log in logs if len(log) > LEAST_LOG]

    def without_texts(self, reason: str) -> Report:
        """The same, with nothing kept beside it and only the beginning of long logs, and that as the reason."""
        reference = self.reference.without_texts(reason) if self.reference is not None else None
        return replace(self, outcome=self.outcome.without_texts(reason), reference=reference)

    def speedup_unavailable_reason(self) -> str:
        """Why there is no speed-up, and what the caller can do."""
        if self.outcome.status is not Status.PASSED:
            return "the kernel did not pass"
        if self.outcome.timing is None:
            return "the kernel was not timed"
        for flag in self.outcome.timing.flags:
            if flag.code in SPEEDUP_UNKNOWN:
                return f"{flag.message}. {flag.code.advice.removesuffix('.')}"
        return (
            "the reference is too fast to time here: give it more work per call, raise num_trials, or run on a machine "
            "that does nothing else"
        )

    def body(self, job_id: str) -> dict[str, Any]:
        """The original service's response with our additions; JSON-ready."""
        environment = self.environment | self.device.to_dict()
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
            if self.outcome.gradients is not None and self.outcome.timing is not None:
                body["kernel_exec_result"]["gradients"]["speedup"] = pass_speedups(self.reference, self.outcome)
            body["speedup_unavailable_reason"] = None if self.speedup else self.speedup_unavailable_reason()
        if self.cases is not None:
            body |= self.cases.to_dict()
        if self.budget is not None:
            body["budget"] = self.budget
        if self.baselines:
            body["baselines"] = self.baselines
        if self.qualification is not None:
            body["qualification"] = self.qualification
        if self.confirmation is not None:
            body["confirmation"] = self.confirmation
        if self.device_metrics is not None:
            body["kernel_exec_result"]["metadata"]["device_metrics"] = self.device_metrics
        writable: dict[str, Any] = _writable(body)
        return writable


def with_defaults(body: dict[str, Any]) -> dict[str, Any]:
    """A stored body; what times and comparisons lack, as an earlier version wrote them, has today's default."""
    for side in (body.get("kernel_exec_result"), body.get("ref_result")):
        for name, kind in (("timing", Timing), ("comparison", Comparison)):
            if isinstance(side, dict) and isinstance(stored := side.get(name), dict) and stored:
                side[name] = _defaults(kind) | stored
    return body


def _defaults(kind: type[Timing] | type[Comparison]) -> dict[str, Any]:
    optional = [each for each in fields(kind) if each.default is not each.default_factory]
    made = {each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in optional}
    return {name: asdict(value) if isinstance(value, Robustness) else value for name, value in made.items()}


def _writable(value: Any) -> Any:
    """Replaces numbers that JSON lacks by null, and drops lone surrogates, which UTF-8 lacks."""
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
    """The first line of a message that is not empty, with the next one after a colon, in at most `most` characters."""
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    line = " ".join(lines[: 1 + (lines[0].endswith(":"))]) if lines else ""
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _right(status: Status) -> bool | None:
    """None if the kernel could not run here."""
    return None if status is Status.UNSUPPORTED else status is Status.PASSED


def _exec_result(outcome: Outcome, environment: dict[str, Any]) -> dict[str, Any]:
    timing, comparison = outcome.timing, outcome.comparison
    detail = "\n".join(part for part in (outcome.message, outcome.log) if part) or None
    result: dict[str, Any] = {
        "status": outcome.status.value,
        "worker_lacks": outcome.worker_lacks,
        "compiled": outcome.compiled,
        "correctness": _right(outcome.status),
        "runtime": timing.stats.mean if timing else 0.0,
        "compilation_error": detail if not outcome.compiled else None,
        "validation_error": detail if outcome.compiled and outcome.status is not Status.PASSED else None,
        "profiling_error": None if timing else outcome.message or "not timed",
        "output": outcome.output,
        "timing": asdict(timing) if timing else None,
        "roofline": outcome.roofline,
        "headroom": outcome.headroom,
        "comparison": asdict(comparison) if comparison else None,
        "inputs": outcome.inputs,
        "build": outcome.build,
        "launches": outcome.launches,
        "artifacts": None if outcome.artifacts is None else [one.to_dict() for one in outcome.artifacts],
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
    if outcome.determinism is not None:
        result["determinism"] = outcome.determinism.to_dict()
    if outcome.gradients is not None:
        result["gradients"] = outcome.gradients.to_dict(timing)
    if timing:
        result["runtime_stats"] = asdict(timing.stats)
    return result
