"""The verdict about a job in one sentence: did it compile, is it right, how fast, how sure, why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import evidence, sanitizer, words
from domain.flags import UPPER_BOUND
from domain.job import State
from domain.result import Status, first_line
from tasks.jobs.job_view import JobView

Result = Mapping[str, Any]

GOOD, BAD, OURS, OPEN = "good", "bad", "ours", "open"

HEADLINES = {
    Status.PASSED: "Passed",
    Status.COMPILE_ERROR: "Does not compile",
    Status.RUNTIME_ERROR: "Runtime error",
    Status.WRONG_RESULT: "Wrong result",
    Status.TIMEOUT: "Timed out",
    Status.CRASHED: "Crashed",
    Status.OUT_OF_MEMORY: "Out of memory",
    Status.UNSUPPORTED: "Not supported here",
    Status.CONTRACT_MISMATCH: "Contract does not fit",
    Status.REFERENCE_FAILED: "The reference failed",
}


@dataclass(frozen=True)
class Verdict:
    """`tone` is one of GOOD, BAD, OURS (the service's or the requester's doing) and OPEN (none yet)."""

    headline: str
    sentence: str
    tone: str


def verdict(view: JobView) -> Verdict:
    """Of a job in any state."""
    match view.state:
        case State.COMPLETED if view.result is not None:
            return of_result(view.result)
        case State.FAILED:
            told = words.sentence(first_line(view.error))
            return Verdict("Not judged", f"The service failed, not the kernel: {told} Submit it again.", OURS)
        case State.CANCELLED:
            told = words.sentence(first_line(view.error)) if view.expired else "on request."
            return Verdict("Cancelled", f"The job was cancelled before there was a verdict: {told}", OURS)
    return Verdict("Not done yet", f"The job is in state {view.state.value}.", OPEN)


def of_result(result: Result) -> Verdict:
    """Of a completed job."""
    status = Status(result["verdict"])
    kernel = result["kernel_exec_result"]
    errors = sanitizer.found(kernel)
    unsound = f" But {errors}." if errors else ""
    if status is Status.PASSED:
        return Verdict(HEADLINES[status], _passed(result, kernel) + unsound, BAD if errors else GOOD)
    tone = OURS if status in (Status.REFERENCE_FAILED, Status.UNSUPPORTED) else BAD
    return Verdict(HEADLINES[status], _failed(status, kernel) + unsound.replace("But c", "C"), tone)


def _passed(result: Result, kernel: Result) -> str:
    comparison, timing = kernel.get("comparison"), kernel.get("timing")
    if comparison is None:
        right = "It compiles and runs. No reference was given, so that nothing is said about its answers"
    else:
        right = f"It compiles, and its answers are right in {words.counted(comparison['calls'], 'compared call')}"
        if (strict := comparison.get("strict")) and not strict["passed"]:
            right += " at the tolerance that was asked for, though not at the strict one of its dtype"
    if not timing:
        why = first_line(kernel.get("profiling_error")) or "nothing says why"
        return f"{right}; it was not timed: {words.sentence(why)}"
    speedup = result.get("speedup")
    fast = _compared(speedup) if speedup else _alone(timing)
    if comparison is not None and not speedup:
        fast += " No speed-up is given: a time is too short, or too unsteady, for a ratio that means something."
    return f"{right}. {fast}{_doubts(result)}"


def _compared(speedup: Result) -> str:
    ratio, low, high = (speedup[name] for name in ("ratio", "ci_low", "ci_high"))
    to = f"to {words.figure(high)}" if high is not None else "upwards"
    interval = f"95 % interval {words.figure(low)} {to}"
    match speedup["verdict"]:
        case "faster" if high is None:
            return f"It is at least {words.figure(low)} times as fast as the reference."
        case "faster":
            return f"It is {words.figure(ratio)} times as fast as the reference ({interval})."
        case "slower" if low == 0:
            return f"It is slower than the reference: at most {words.figure(high)} times as fast."
        case "slower":
            return f"It is slower than the reference: {words.figure(ratio)} times as fast ({interval})."
    return f"No difference in speed to the reference can be told ({interval})."


def _alone(timing: Result) -> str:
    relative_ci = timing.get("relative_ci")
    sure = f" (± {words.share(relative_ci)})" if relative_ci is not None else ""
    bounded = any(UPPER_BOUND in flag for flag in timing.get("flags") or ())
    return f"A call takes {'at most ' if bounded else ''}{words.duration(timing['latency_ms'])}{sure}."


def _doubts(result: Result) -> str:
    flags = len(evidence.flags(result))
    if not flags:
        return ""
    return " One flag qualifies that." if flags == 1 else f" {flags} flags qualify that."


def _failed(status: Status, kernel: Result) -> str:
    comparison = kernel.get("comparison")
    why = words.sentence(first_line(kernel.get("compilation_error") or kernel.get("validation_error")))
    match status:
        case Status.COMPILE_ERROR:
            return f"It does not compile: {why}"
        case Status.WRONG_RESULT if comparison and comparison.get("mismatch_map"):
            wrong, right = comparison["calls"] - comparison["calls_passed"], comparison["calls"]
            elements = words.counted(comparison["mismatch_count"], "element")
            return (
                f"It compiles, but its answers are wrong in {wrong} of {words.counted(right, 'compared call')}: "
                f"{elements} of {words.count(comparison['element_count'])} are out of tolerance. So no time is given."
            )
        case Status.REFERENCE_FAILED:
            return f"Nothing is said about the kernel: {why}"
        case _ if not kernel.get("compiled"):
            return f"It was not built: {why}"
    return f"It compiles, but: {why}"
