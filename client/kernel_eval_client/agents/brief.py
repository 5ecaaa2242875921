"""A result in a few lines that a model can act on: what was found, where, and what to try next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kernel_eval_client.artifact import Artifact
from kernel_eval_client.errors import CallerError, KernelEvalError, KeyRefused, RateLimited, ServiceError, UnknownJob
from kernel_eval_client.explain import excerpt, spots
from kernel_eval_client.job import Job
from kernel_eval_client.launched import in_a_line
from kernel_eval_client.machine_code import MachineCode
from kernel_eval_client.result import Result

MOST = 2000
"""Characters of an answer: what is longer is told to be, and how to read on."""

PARTS = (
    *("error", "timing", "comparison", "inputs", "build", "launches", "artifacts", "output", "speedup", "environment"),
)
_OF_KERNEL = frozenset({"timing", "comparison", "inputs", "build", "launches", "artifacts", "output"})
_ERROR_LINES = 12
_KERNELS = 4

NEXT = {
    "compile_error": "Mend the lines named above and send the whole source again.",
    "runtime_error": "Mend the lines named above. An illegal address is an index out of bounds: mask loads and stores.",
    "wrong_result": "Compare with the reference at the first mismatch: wrong at the end of a dimension is a missing"
    " mask, wrong everywhere a wrong formula, wrong by little too low a precision. `comparison` has the figures.",
    "timeout": "It did not end: look for a loop or a wait without an end, or raise `timeout`.",
    "crashed": "Its process died: look for writes out of bounds, or for code that ends the process.",
    "out_of_memory": "Make intermediate results smaller, or work block by block.",
    "unsupported": "It was not run here: this worker has no device for it, or its outputs change shape between calls.",
    "contract_mismatch": "The IO contract does not fit the kernel: names, order and types of its arguments are compared"
    " with the signature. The examples have contracts that fit.",
    "reference_failed": "Nothing was said about the candidate: the reference failed. Mend that, or choose another.",
}
WITH_TOOLS = {
    "wrong_result": " Ask for it with `part=comparison`.",
    "contract_mismatch": " `list_examples` has them.",
}
"""What a reader of ours can do besides; NEXT is also for those who have no tools (docs/errors.md)."""
SLOWER = "Right, and not surely faster. Usual gains: fewer passes over memory (fuse steps), wider loads, larger tiles."
UNMEASURED = "Right. To learn whether it is faster, give it larger inputs: a call this short cannot be told from none."
FASTER = "Right and faster. `part=timing` says how sure that is; flags above would say what makes it doubtful."
ALONE = "It ran. Use compare with a reference to learn whether it is right and faster."


def of_result(found: Result, source: str = "") -> str:
    """Verdict, times, the error at its line, flags, the next step."""
    lines = [f"{found.verdict} (job {found.job_id}, on {_device(found)})", *_figures(found)]
    if found.error:
        lines += _error(found.error, source)
    # What to do next goes last and is never cut off; neither is a flag that is short.
    flags = [f"flag: {_cut(flag, 240)}" for flag in found.flags]
    if found.kernel.comparison:
        flags += [f"weak reference: {_cut(each, 160)}" for each in found.kernel.comparison.weak_reference]
    tail = "\n".join([*flags[:4], f"next: {next_step(found)}"])
    return _cut("\n".join(lines), MOST - len(tail) - 1) + "\n" + tail


def next_step(found: Result) -> str:
    """What to try."""
    if not found.passed:
        return NEXT.get(found.verdict, "Read the error above.") + WITH_TOOLS.get(found.verdict, "")
    if found.reference is None:
        return ALONE
    if found.speedup is None:
        return UNMEASURED
    return FASTER if found.speedup is not None and found.speedup.verdict == "faster" else SLOWER


def of_job(job: Job) -> str:
    """Where it stands."""
    if job.result is not None:
        return of_result(job.result)
    if job.done:
        what = "submit it again" if job.state == "failed" else "it was cancelled"
        return _cut(f"job {job.job_id} is {job.state}: {job.error or 'no reason was given'}\nnext: {what}.", MOST)
    if job.raw.get("correct_so_far") is not None:
        stage = f"{job.stage}, {'right' if job.raw['correct_so_far'] else 'wrong'} so far"
    else:
        stage = job.stage
    place = "" if job.queue_position is None else f", {job.queue_position} before it"
    return f"job {job.job_id} is {job.state} ({stage}{place})\nnext: ask again with status in a while."


def of_part(found: Result, part: str, offset: int) -> str:
    """One part of the answer as it came, from that character on."""
    kernel = found.raw["kernel_exec_result"]
    value: Any = found.error if part == "error" else kernel.get(part) if part in _OF_KERNEL else found.raw.get(part)
    text = value if isinstance(value, str) else json.dumps(value, indent=1)
    return page(text or "nothing", offset)


def page(text: str, offset: int) -> str:
    """At most `MOST` characters from there on, and where the next begin."""
    shown = text[offset : offset + MOST - 60]
    rest = len(text) - offset - len(shown)
    return shown if rest <= 0 else f"{shown}\n… {rest} more: ask again with offset={offset + len(shown)}"


def of_artifacts(found: list[Artifact]) -> str:
    """Which texts there are, and why others are not."""
    if not found:
        return 'none: ask for them with artifacts=["ptx", "sass"] when the kernel is judged'
    return "\n".join(_told(one) for one in found)


def _told(one: Artifact) -> str:
    if one.name is None:
        of = f" of {one.kernel}" if one.kernel else ""
        return f"{one.side}: no {one.form}{of}: {one.unavailable}"
    variant = f" ({one.variant})" if one.variant else ""
    return f"{one.side}: {one.name}{variant}, {one.bytes} bytes{', its end left out' if one.truncated else ''}"


def of_error(error: KernelEvalError) -> str:
    """Whose fault it is, and what to do."""
    if isinstance(error, UnknownJob):
        step = "Check the id; finished jobs are kept for a day."
    elif isinstance(error, KeyRefused):
        step = "The API key is at fault; ask whoever runs this server."
    elif isinstance(error, CallerError):
        step = "Mend the request."
    elif isinstance(error, RateLimited):
        step = "Wait, then send it again."
    elif isinstance(error, ServiceError):
        step = "Not the kernel's fault: send the same again later."
    else:
        step = "Nobody's fault."
    fields = error.fields if isinstance(error, CallerError) else ()
    told = "\n".join(map(str, fields)) or str(error)
    return f"{_cut(told, MOST - len(step) - 7)}\nnext: {step}"


def _figures(found: Result) -> Iterator[str]:
    timing, comparison = found.kernel.timing, found.kernel.comparison
    if timing is not None:
        reference = found.reference.runtime if found.reference else None
        beside = "" if reference is None else f", reference {reference:.4g} ms"
        yield f"time: {timing.stats.mean:.4g} ms a call{beside} ({timing.calls} calls, {timing.method})"
    if found.speedup is not None:
        high = "open" if found.speedup.high is None else f"{found.speedup.high:.3g}"
        interval = f"{found.speedup.low:.3g} to {high}"
        yield f"speed-up: {found.speedup.ratio:.3g}x, 95 % interval {interval}: {found.speedup.verdict}"
    elif found.passed and found.reference is not None:
        yield "speed-up: not measured; a flag says why"
    if left_out := found.budget.get("left_out"):
        yield f"not looked at with this budget: {', '.join(map(str, left_out))}"
    if found.reused_from is not None:
        yield f"the answer of an earlier job: {found.reused_from.get('job_id')}"
    if comparison is not None and not comparison.passed:
        yield f"wrong: {comparison.mismatch_count} of {comparison.element_count} elements, largest difference " + (
            f"{comparison.max_abs_diff}, atol {comparison.atol}, rtol {comparison.rtol}"
        )
        if comparison.first_mismatch:
            yield f"first mismatch: {_cut(json.dumps(dict(comparison.first_mismatch)), 200)}"
    yield from _on_device(found)
    if found.kernel.inputs.get("inferred"):
        yield _cut(str(found.kernel.inputs["inferred"]), 200)


def _on_device(found: Result) -> Iterator[str]:
    if (launched := in_a_line(found.kernel.launches)) is not None:
        yield _cut(f"launches {launched}", 300)
    for code in found.kernel.machine_code[:_KERNELS]:
        yield _cut(_code(code), 200)


def _code(code: MachineCode) -> str:
    told = [f"{code.registers} registers a thread"]
    if spilled := (code.spill_store_bytes or 0) + (code.spill_load_bytes or 0):
        told.append(f"{spilled} bytes spilled and read back")
    elif code.local_bytes:
        told.append(f"{code.local_bytes} bytes of local memory")
    if code.shared_bytes:
        told.append(f"{code.shared_bytes} bytes of shared memory a block")
    if code.occupancy is not None:
        told.append(f"theoretical occupancy {code.occupancy:.0%}, limited by {code.limited_by}")
    return f"code of {code.name}: {', '.join(told)}"


def _error(error: str, source: str) -> Iterator[str]:
    lines = error.splitlines()
    yield _cut(lines[0], 400)
    found = spots(error)
    for spot in found:
        yield f"line {spot.line}: {_cut(spot.message, 200)}"
        yield from (_cut(line, 120) for line in excerpt(source, spot))
    if not found:
        yield from (_cut(line, 160) for line in lines[1:_ERROR_LINES])


def _device(found: Result) -> str:
    return str(found.environment.get("gpu_name") or found.environment.get("device") or "?")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"
