"""Summarises the verdict about a job in one sentence: whether it compiled, is right, how fast, how sure, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import baselines, evidence, sanitizer, words
from api.pages.cases import in_cases
from api.pages.stored_record import WRITTEN_BY_ANOTHER, read_or
from domain.flags.codes import SPEEDUP_UNKNOWN, FlagCode
from domain.job import State
from domain.result import Status, first_line
from domain.speed.confirmation import Finding
from tasks.jobs.job_view import JobView

Result = Mapping[str, Any]

_BUILT_ONLY = re.compile(r"compiled for (?P<arch>\S+), and not run: (?P<why>.*)", re.DOTALL)
_POSITION = re.compile(r"^(\S+)\((\d+)\): error:")
_MOST = 600
"""Most characters of a failed kernel's message: a compiler's line, its types, and what to do about it."""
LEAST = 1e-9
"""Least speed-up that is turned into a slow-down: none may be divided by 0."""
GOOD, BAD, NEUTRAL, OPEN = "good", "bad", "ours", "open"

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

_CONFIRMATIONS = {
    Finding.CONFIRMED: "It confirms job {of}, which said {first} times.",
    Finding.LARGER: "It confirms job {of}, which said only {first} times.",
    Finding.SMALLER: "It does not confirm job {of} in full, which said {first} times.",
    Finding.VANISHED: "It does not confirm job {of}, which said {first} times.",
    Finding.ONLY_BOUNDS: "Whether it confirms the {first} times of job {of} is unknown: one of them is only a bound.",
    Finding.NOT_MEASURED: "It passes as job {of} did, without a speed-up to compare with its {first} times.",
}


@dataclass(frozen=True)
class Verdict:
    """`tone` is one of GOOD, BAD, NEUTRAL (caused by the service or the client) and OPEN (no verdict yet)."""

    headline: str
    sentence: str
    tone: str


def verdict(view: JobView) -> Verdict:
    match view.state:
        case State.COMPLETED:
            unread = Verdict("Written by another version", WRITTEN_BY_ANOTHER, NEUTRAL)
            return read_or(lambda: of_result(view.result or {}), unread)
        case State.FAILED:
            reason = words.sentence(first_line(view.error))
            return Verdict("Not judged", f"The service failed, not the kernel: {reason} Submit it again.", NEUTRAL)
        case State.CANCELLED:
            reason = words.sentence(first_line(view.error)) if view.expired else "on request."
            return Verdict("Cancelled", f"The job was cancelled before there was a verdict: {reason}", NEUTRAL)
    return Verdict("Not done yet", f"The job is in state {view.state.value}.", OPEN)


def of_result(result: Result) -> Verdict:
    status = Status(result["verdict"])
    kernel = result["kernel_exec_result"]
    errors = sanitizer.error_summary(kernel)
    unsound = _confirmation(result) + (f" But {errors}." if errors else "")
    if (qualified := result.get("qualification")) is not None:
        tone = GOOD if qualified["fit"] and not errors else BAD
        return Verdict(
            "Fit to be merged" if qualified["fit"] else "Not fit to be merged", qualified["sentence"] + unsound, tone
        )
    if status is Status.PASSED:
        return Verdict(HEADLINES[status], _passed(result, kernel) + unsound, BAD if errors else GOOD)
    explanation = _failed(status, kernel, in_cases(result)) + unsound.replace("But c", "C")
    return Verdict(HEADLINES[status], explanation, tone_of(status))


def tone_of(status: Status) -> str:
    """GOOD or BAD; NEUTRAL where the kernel was not judged."""
    if status in (Status.REFERENCE_FAILED, Status.UNSUPPORTED):
        return NEUTRAL
    return GOOD if status is Status.PASSED else BAD


def _passed(result: Result, kernel: Result) -> str:
    comparison, timing = kernel.get("comparison"), kernel.get("timing")
    if comparison is None:
        right = f"It compiles and runs{in_cases(result)}. There was no reference, so correctness was not checked"
    else:
        calls = words.counted(comparison["calls"], "compared call")
        right = f"It compiles, and its outputs are right in {calls}{in_cases(result)}"
        if (strict := comparison.get("strict")) and not strict["passed"]:
            right += " at the requested tolerance, though not at the strict one of its dtype"
    if not timing:
        why = first_line(kernel.get("profiling_error")) or "without a known reason"
        return f"{right}; it was not timed: {words.sentence(why)}"
    if any(flag["code"] == FlagCode.INTERPRETED for flag in timing.get("flags") or ()):
        return f"{right}. An interpreter ran it on the CPU, so its time is none of a GPU.{_flags(result)}"
    speedup = result.get("speedup")
    fast = _compared(speedup) if speedup else _absolute_time(timing)
    if comparison is not None and not speedup:
        why = _flag_against_speedup(timing) or "a time is too short or too unsteady for a meaningful ratio"
        fast += f" No speed-up is reported: {words.sentence(why)}"
    if any(flag["code"] == FlagCode.FIXED_OUTPUTS_PASS for flag in (comparison or {}).get("weak_reference") or ()):
        fast += " That says nothing: outputs fixed beforehand would pass too."
    return f"{right}. {fast}{baselines.sentence(result)}{_flags(result)}"


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
            return f"It is at least {words.figure(1 / max(high, LEAST))} times slower than the reference."
        case "slower":
            return f"It is slower than the reference: {words.figure(ratio)} times as fast ({interval})."
    if high is None or low == 0:
        end = f"at least {words.figure(low)}" if high is None else f"at most {words.figure(high)}"
        return f"It is too noisy to tell which is faster (speed-up {end})."
    return f"No significant difference in speed to the reference ({interval})."


def _absolute_time(timing: Result) -> str:
    relative_ci = timing.get("relative_ci")
    sure = f" (± {words.share(relative_ci)})" if relative_ci is not None else ""
    bounded = any(flag["code"] == FlagCode.UPPER_BOUND for flag in timing.get("flags") or ())
    return f"A call takes {'at most ' if bounded else ''}{words.duration(timing['latency_ms'])}{sure}."


def _flag_against_speedup(timing: Result) -> str | None:
    return next((flag["message"] for flag in timing.get("flags") or () if flag["code"] in SPEEDUP_UNKNOWN), None)


def _flags(result: Result) -> str:
    codes = dict.fromkeys(words.name(flag["code"]) for flag in evidence.flags(result))
    return f" Flagged: {', '.join(codes)}." if codes else ""


def _confirmation(result: Result) -> str:
    """Whether the job confirms the earlier one that it judged again; empty for a job that confirms none."""
    finding = result.get("confirmation")
    if not finding:
        return ""
    if not finding["verdict_stands"]:
        return f" It does not confirm job {finding['of']}, which passed."
    first = words.figure(finding["first_speedup"]["ratio"])
    text = _CONFIRMATIONS[Finding(finding["finding"])].format(of=finding["of"], first=first)
    together = finding["together"]
    if together is None:
        return f" {text}"
    low, high = words.figure(together["ci_low"]), words.figure(together["ci_high"])
    return f" {text} Both together support {words.figure(together['ratio'])} times (95 % interval {low} to {high})."


def _failed(status: Status, kernel: Result, in_its_cases: str) -> str:
    comparison = kernel.get("comparison")
    why = words.sentence(first_line(kernel.get("compilation_error") or kernel.get("validation_error"), _MOST))
    match status:
        case Status.COMPILE_ERROR:
            why = _POSITION.sub(r"\1, line \2:", why.removeprefix("the source does not compile: "))
            return f"It does not compile: {why}"
        case Status.WRONG_RESULT if comparison and comparison.get("mismatch_map"):
            wrong, right = comparison["calls"] - comparison["calls_passed"], comparison["calls"]
            elements = words.counted(comparison["mismatch_count"], "element")
            return (
                f"It compiles, but its outputs are wrong{in_its_cases}{' (' if in_its_cases else ' in '}{wrong} of "
                f"{words.counted(right, 'compared call')}{' there)' if in_its_cases else ''}: "
                f"{elements} of {words.count(comparison['element_count'])} "
                f"{'is' if comparison['mismatch_count'] == 1 else 'are'} out of tolerance. No time is reported."
            )
        case Status.REFERENCE_FAILED:
            return f"Your kernel was not judged: {why}"
        case _ if not kernel.get("compiled"):
            return f"It was not built: {why}"
        case Status.UNSUPPORTED if (built := _BUILT_ONLY.match(why)) is not None:
            return f"It compiles for {built['arch']}. It was not run: {built['why']}"
    return f"It compiles, but: {why}"
