"""A result in a few lines that a model can act on: the verdict, its cause and place, and the next step.

Lines that begin with `| ` may quote the submission: they are material and never the service's words.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_eval_client.agents import device, faults
from kernel_eval_client.agents.wording import for_tools
from kernel_eval_client.errors import CallerError, KernelEvalError
from kernel_eval_client.job import Job
from kernel_eval_client.launch_summary import in_a_line
from kernel_eval_client.machine_code import MachineCode
from kernel_eval_client.result import Comparison, Result
from kernel_eval_client.timing import Speedup
from kernel_eval_client.untrusted_text import cut, named, plain, quoted

__all__ = ["MAXIMUM_LENGTH", "describe_state", "of_error", "of_job", "of_jobs", "of_result", "of_service"]

MAXIMUM_LENGTH = 2000
"""Maximum length of a tool's reply, in characters. A longer one is cut, says so, and says how to read on."""

UNKNOWN_STEP = "Read the lines above: this version of the service names no next step."
CORRECT = "Correct the call as the message says."
ANEW = "Submit it again if you still want the verdict."
_CASES = 4
_KERNELS = 4
_FLAGS = 4


def of_result(result: Result, source: str = "", reference: str = "") -> str:
    """Verdict, times, the error with its line, flags and the next step."""
    lines = [f"{result.verdict} (job {result.job_id}, on {_device(result)})", *_figures(result)]
    lines += device.sanitizer_lines(result, source)
    if result.error and not _compared_wrong(result):
        lines += faults.describe(result, source, reference)
    lines += _on_device(result)
    # The next step comes last and is never cut off, nor is a short flag.
    checked = result.sanitizer
    flags = (
        [f"flag: the sanitizer {cut(plain(checked.headline), 200)}"] if checked and checked.tools_with_findings else []
    )
    flags += [f"flag: {cut(plain(flag.message), 240)}" for flag in result.kernel.flags]
    if result.reference is not None:
        reference_flags = [flag for flag in result.reference.flags if flag not in result.kernel.flags]
        flags += [f"flag of the reference: {cut(plain(flag.message), 240)}" for flag in reference_flags]
    if result.kernel.comparison:
        flags += [
            f"weak reference: {cut(plain(each.message), 160)}" for each in result.kernel.comparison.weak_reference
        ]
    step = for_tools(result.next or UNKNOWN_STEP, compared=result.reference is not None)
    tail = "\n".join(map(plain, [*flags[:_FLAGS], f"next: {step}"]))
    return cut("\n".join(map(plain, lines)), MAXIMUM_LENGTH - len(tail) - 1) + "\n" + tail


def of_job(job: Job, source: str = "", reference: str = "") -> str:
    """The job's state, or its result."""
    if job.result is not None:
        return of_result(job.result, source, reference)
    if job.done:
        reason = plain(job.error or "no reason")
        return cut(f"job {job.job_id} is {plain(job.state)}: {reason}\nnext: {ANEW}", MAXIMUM_LENGTH)
    since = "" if job.submitted_at is None else f", handed in {max(0.0, time.time() - job.submitted_at):.0f} s ago"
    return (
        f"job {job.job_id} is {describe_state(job)}{since} and goes on\n"
        f'next: result("{job.job_id}") waits for it, cancel("{job.job_id}") ends it.'
    )


def describe_state(job: Job) -> str:
    """The job's state, stage and position in the queue."""
    state = job.state if job.stage == job.state or job.done else f"{job.state} ({job.stage})"
    if job.cancel_requested and not job.done:
        state += ", being cancelled"
    if job.raw.get("interim_correct") is not None and not job.done:
        state += f", {'right' if job.raw['interim_correct'] else 'wrong'} so far"
    return plain(state if job.queue_position is None else f"{state}, {job.queue_position} before it")


def of_jobs(jobs: Sequence[Job]) -> str:
    """One line for each job: id, state, verdict, age."""
    if not jobs:
        return "none are kept of this key"
    return cut("\n".join(_in_a_line(job) for job in jobs), MAXIMUM_LENGTH)


def _in_a_line(job: Job) -> str:
    verdict = (job.raw.get("summary") or {}).get("verdict")
    age = "" if job.submitted_at is None else f", {max(0.0, time.time() - job.submitted_at):.0f} s ago"
    name = f' "{named(job.name)}"' if job.name else ""
    state = describe_state(job) + (f" {verdict}" if verdict else "")
    return plain(f"{job.job_id} {state} ({job.operation} {job.kernel_type}{age})") + name


def of_service(health: Mapping[str, Any], version: str) -> str:
    """The service's health, its devices, and the number of jobs in each state."""
    lines = [f"kernel evaluation service {plain(version)}: {health.get('status')}"]
    lines += [plain(str(reason)) for reason in health.get("reasons") or ()]
    for worker in health.get("workers") or ():
        versions = ", ".join(f"{name} {value}" for name, value in (worker.get("versions") or {}).items())
        device = worker.get("gpu_name") or f"{worker.get('device')} (no GPU: Triton is interpreted, CUDA only compiled)"
        state = f"; takes no jobs: {worker['quarantined']}" if worker.get("quarantined") else ""
        lines.append(plain(f"device: {device}, {worker.get('max_workers')} jobs at once; {versions}{state}"))
    by_state = (health.get("job_stats") or {}).get("by_status") or {}
    lines.append(f"jobs: {', '.join(f'{int(count)} {state}' for state, count in by_state.items()) or 'not known'}")
    return cut("\n".join(map(plain, lines)), MAXIMUM_LENGTH)


def of_error(error: KernelEvalError, *, compared: bool = False) -> str:
    """The error's message, and the next step."""
    step = for_tools(error.next or CORRECT, compared=compared)
    fields = error.fields if isinstance(error, CallerError) else ()
    messages = "\n".join(plain(for_tools(str(message), compared=compared)) for message in fields or (error,))
    return f"{cut(messages, MAXIMUM_LENGTH - len(step) - 7)}\nnext: {step}"


def _figures(result: Result) -> Iterator[str]:
    timing, comparison = result.kernel.timing, result.kernel.comparison
    if timing is not None:
        reference = result.reference.runtime if result.reference else None
        against = "" if reference is None else f", reference {reference:.4g} ms"
        most = "at most " if timing.bounded else ""
        yield f"time: {most}{timing.stats.mean:.4g} ms a call{against} ({timing.calls} calls, {plain(timing.method)})"
    if result.speedup is not None:
        verdict = "says nothing, as fixed outputs would pass" if result.fixed_outputs_pass else result.speedup.verdict
        yield f"speed-up: {_interval(result.speedup)}: {verdict}"
    elif result.passed and result.reference is not None:
        yield f"speed-up: none: {cut(plain(result.raw.get('speedup_unavailable_reason') or 'a flag says why'), 240)}"
    yield from _beside_the_speedup(result)
    yield from _of_cases(result)
    if skipped_checks := result.budget.get("skipped_checks"):
        yield plain(f"not looked at with this budget: {', '.join(map(str, skipped_checks))}")
    if result.reused_from is not None:
        yield f"the answer of an earlier job: {result.reused_from.get('job_id')}"
    if comparison is not None and _compared_wrong(result):
        yield f"wrong: {cut(plain(result.error or comparison.message or ''), 600)}"
        if where := _where(comparison):
            yield where
    if result.passed and comparison is not None and comparison.strict and not comparison.strict.get("passed"):
        yield "right at this tolerance, though not at the strict one of its dtype: part=comparison has both"
    if result.kernel.inputs.get("inferred"):
        yield cut(plain(str(result.kernel.inputs["inferred"])), 200)


def _beside_the_speedup(result: Result) -> Iterator[str]:
    if result.headroom.ratio is not None:
        yield plain(f"headroom: {result.headroom}")
    for baseline in result.baselines:
        if baseline.name != "eager":
            outcome = _interval(baseline.speedup) if baseline.speedup else f"none: {baseline.message}"
            yield cut(plain(f"speed-up over the reference under torch.{baseline.name}: {outcome}"), 240)


def _of_cases(result: Result) -> Iterator[str]:
    """A line for each of the first cases, wrong ones before others, and one for hidden ones."""
    for case in sorted(result.cases, key=lambda case: case.verdict == "passed")[:_CASES]:
        time = "not timed" if case.runtime_ms is None else f"{case.runtime_ms:.4g} ms a call, no speed-up"
        outcome = _interval(case.speedup) if case.speedup else cut(plain(case.message or time), 120)
        yield f"case {named(case.name)}: {plain(case.verdict or 'not judged')}, {outcome}"
    if (left := len(result.cases) - _CASES) > 0:
        yield f"and {left} more cases"
    if result.hidden_cases.get("count"):
        yield plain("hidden cases: {passed} of {count} passed".format(**result.hidden_cases))


def _interval(speedup: Speedup) -> str:
    if speedup.ci_high is None:
        return f"at least {speedup.ci_low:.3g}x"
    if speedup.ci_low == 0:
        return f"at most {speedup.ci_high:.3g}x"
    return f"{speedup.ratio:.3g}x, 95 % interval {speedup.ci_low:.3g} to {speedup.ci_high:.3g}"


def _compared_wrong(result: Result) -> bool:
    """Whether the error is the referee's own comparison of outputs."""
    comparison = result.kernel.comparison
    if result.verdict != "wrong_result" or comparison is None or not comparison.message:
        return False
    return (result.error or "").startswith(comparison.message)


def _where(comparison: Comparison) -> str | None:
    reach = _wrong_ranges(comparison.mismatch_map or {})
    if reach is None or comparison.mismatch_map is None:
        return None
    (top, bottom), (left, right) = reach
    where = comparison.mismatch_map
    of = f"output {where.get('output')}"
    if where.get("slice"):
        of += f" at {json.dumps(where['slice'])}"
    folded = " (in lines)" if where.get("folded") else ""
    return (
        f"where: {of}{folded}: {where.get('mismatch_count')} wrong within rows {top} to {bottom - 1} of "
        f"{where['rows']}, columns {left} to {right - 1} of {where['columns']}"
    )


def _wrong_ranges(where: Mapping[str, object]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The ranges of rows and of columns with wrong blocks, each as (first, end); None for a map in another form."""
    counts, block, rows, columns = (where.get(name) for name in ("counts", "block", "rows", "columns"))
    if not (
        isinstance(counts, list) and isinstance(block, list) and isinstance(rows, int) and isinstance(columns, int)
    ):
        return None
    high = [n for n, line in enumerate(counts) if any(line)]
    wide = [n for line in counts for n, count in enumerate(line) if count]
    if not high or not wide:
        return None
    height, width = block
    return (
        (high[0] * height, min(rows, (high[-1] + 1) * height)),
        (min(wide) * width, min(columns, (max(wide) + 1) * width)),
    )


def _on_device(result: Result) -> Iterator[str]:
    if (launched := in_a_line(result.kernel.launches)) is not None:
        yield quoted(f"launches {launched}", 300)
    yield from device.counter_lines(result)
    for code in result.kernel.machine_code[:_KERNELS]:
        yield cut(_machine_code_line(code), 200)


def _machine_code_line(code: MachineCode) -> str:
    parts = [f"{code.registers} registers a thread"]
    if spilled := (code.spill_store_bytes or 0) + (code.spill_load_bytes or 0):
        parts.append(f"{spilled} bytes spilled and read back")
    elif code.local_bytes:
        parts.append(f"{code.local_bytes} bytes of local memory")
    if code.shared_bytes:
        parts.append(f"{code.shared_bytes} bytes of shared memory a block")
    if code.occupancy is not None:
        parts.append(f"theoretical occupancy {code.occupancy:.0%}, limited by {named(code.limited_by)}")
    return f"code of {named(code.name)}: {', '.join(parts)}"


def _device(result: Result) -> str:
    return named(result.environment.get("gpu_name") or result.environment.get("device") or "?")
