"""Everything that qualifies a verdict, in one list: what was found, and about whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from api.pages import sanitizer, words

Result = Mapping[str, Any]
KERNEL, REFERENCE, TASK, CARD = "the kernel", "the reference", "the task", "the card"


def flags(result: Result) -> list[tuple[str, str]]:
    """Pairs of whose it is and what was found, each once."""
    kernel, reference = result["kernel_exec_result"], result.get("ref_result") or {}
    found: dict[str, str] = {}
    for whose, text in _all(result, kernel, reference):
        found.setdefault(text, whose)
    return [(whose, text) for text, whose in found.items()]


def _all(result: Result, kernel: Result, reference: Result) -> Iterator[tuple[str, str]]:
    comparison = kernel.get("comparison") or {}
    yield from _of_request(result)
    for text in comparison.get("weak_reference") or ():
        yield TASK, text
    for whose, side in ((KERNEL, kernel), (REFERENCE, reference)):
        for source in ("timing", "launches"):
            for text in (side.get(source) or {}).get("flags") or ():
                yield whose, text
    for finding in (sanitizer.found(kernel), (comparison.get("precision_check") or {}).get("finding")):
        if finding:
            yield KERNEL, finding
    for text in comparison.get("layout") or ():
        yield KERNEL, text
    yield from _of_inputs(kernel.get("inputs") or {})
    errors = (result.get("environment") or {}).get("gpu_errors")
    for error in errors if isinstance(errors, list) else ():
        yield CARD, f"the driver reported Xid {error.get('xid')}: {error.get('meaning')}"


def _of_request(result: Result) -> Iterator[tuple[str, str]]:
    earlier, budget = result.get("reused_from"), result.get("budget") or {}
    if earlier:
        yield TASK, f"nothing was run for this job: the same work was answered before, as job {earlier.get('job_id')}"
    if budget.get("skipped_checks"):
        skipped = ", ".join(words.name(each) for each in budget["skipped_checks"])
        yield TASK, f"the budget {budget.get('name')} leaves out: {skipped}"


def _of_inputs(inputs: Result) -> Iterator[tuple[str, str]]:
    if inputs.get("inputs_not_random"):
        yield TASK, "the fresh input sets are all equal: nothing in them is random, so that answers could be remembered"
    reused = inputs.get("reused_sets")
    if reused:
        yield TASK, f"{words.counted(reused, 'call')} got inputs that were used before, since drawing took too long"
