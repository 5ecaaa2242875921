"""Everything that qualifies a verdict, in one list of flags, each with the kernel that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from api.pages import sanitizer, words
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import CANDIDATE, REFERENCE

Result = Mapping[str, Any]
SUBJECTS = {CANDIDATE: "the kernel", REFERENCE: "the reference"}


def flags(result: Result) -> list[dict[str, Any]]:
    """Each once: `code`, `message`, `data`, and in `kernel` the side that it is about, None for neither."""
    kernel, reference = result["kernel_exec_result"], result.get("ref_result") or {}
    by_message: dict[str, dict[str, Any]] = {}
    for side, flag in _collect_flags(result, kernel, reference):
        by_message.setdefault(flag["message"], {"kernel": side, **flag})
    return list(by_message.values())


def subject(flag: Mapping[str, Any]) -> str:
    about_gpu = flag["code"] == FlagCode.GPU_ERROR
    return SUBJECTS.get(flag["kernel"], "the card" if about_gpu else "the task")


Sided = tuple[str | None, Mapping[str, Any]]


def _collect_flags(result: Result, kernel: Result, reference: Result) -> Iterator[Sided]:
    comparison = kernel.get("comparison") or {}
    yield from _of_request(result)
    for flag in comparison.get("weak_reference") or ():
        yield None, flag
    for side, one in ((CANDIDATE, kernel), (REFERENCE, reference)):
        for source in ("timing", "launches", "determinism"):
            for flag in (one.get(source) or {}).get("flags") or ():
                yield side, flag
    if errors := sanitizer.error_summary(kernel):
        yield CANDIDATE, asdict(Flag(FlagCode.SANITIZER_ERRORS, errors))
    if finding := (comparison.get("precision_check") or {}).get("finding"):
        yield CANDIDATE, finding
    for name in ("layout", "beyond_tolerance"):
        for flag in comparison.get(name) or ():
            yield CANDIDATE, flag
    yield from _of_inputs(kernel.get("inputs") or {})
    xids = (result.get("environment") or {}).get("gpu_errors")
    for error in xids if isinstance(xids, list) else ():
        message = f"the driver reported Xid {error.get('xid')}: {error.get('meaning')}"
        yield None, asdict(Flag(FlagCode.GPU_ERROR, message, {"xid": error.get("xid")}))


def _of_request(result: Result) -> Iterator[Sided]:
    earlier, budget = result.get("reused_from"), result.get("budget") or {}
    if earlier:
        job_id = earlier.get("job_id")
        message = f"nothing was run for this job: the same work was judged before, as job {job_id}"
        yield None, asdict(Flag(FlagCode.RESULT_REUSED, message, {"job_id": job_id}))
    if budget.get("skipped_checks"):
        skipped = ", ".join(words.name(each) for each in budget["skipped_checks"])
        message = f"the budget {budget.get('name')} skipped these checks: {skipped}"
        yield None, asdict(Flag(FlagCode.CHECKS_SKIPPED, message, {"budget": budget.get("name")}))


def _of_inputs(inputs: Result) -> Iterator[Sided]:
    if inputs.get("inputs_not_random"):
        yield None, asdict(Flag.of(FlagCode.INPUTS_NOT_RANDOM))
    reused = inputs.get("reused_sets")
    if reused:
        yield None, asdict(Flag.of(FlagCode.INPUTS_REUSED, calls=reused))
