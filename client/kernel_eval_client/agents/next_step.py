"""The next step to try, by the verdict and its cause."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_eval_client import flag as flags
from kernel_eval_client.result import Comparison, Result
from kernel_eval_client.typed_members import member, number

NEXT = {
    "compile_error": "Mend the lines named above and send the whole source again.",
    "runtime_error": "Mend the lines named above. An illegal address is an index out of bounds: mask loads and stores.",
    "wrong_result": "Compare with the reference at the first mismatch: wrong at the end of a dimension is a missing"
    " mask, wrong everywhere a wrong formula, wrong by little too low a precision. `comparison` has the figures.",
    "timeout": "It did not end: look for a loop or a wait without an end, or raise `timeout`.",
    "crashed": "Its process died: look for writes out of bounds, or for code that ends the process.",
    "out_of_memory": "Make intermediate results smaller, or work block by block.",
    "unsupported": "The worker could not run it: it has no device or no package for it, or the shapes of `get_inputs()`"
    " change between calls. Without a reference also: the output's form cannot be read, or changes.",
    "contract_mismatch": "The IO contract does not fit the kernel: names, order and types of its arguments are compared"
    " with the signature. The examples have contracts that fit.",
    "reference_failed": "Nothing was said about the candidate: the reference failed. Mend that, or choose another.",
}
"""The next step by verdict alone. docs/errors.md prints these, for readers without the tools."""

WITH_TOOLS = {
    "wrong_result": " Ask for it with `part=comparison`.",
    "contract_mismatch": " `list_examples` has them.",
}
GAINS = (
    "Usual gains: fewer passes over memory (fuse steps), wider loads, larger tiles. On a GPU `device_metrics=basic`"
    " says what limits it."
)
SLOWER = f"Right, but slower than the reference. {GAINS}"
NO_DIFFERENCE = f"Right, and neither faster nor slower as far as can be told. {GAINS}"
FASTER = "Right and faster. `part=timing` says how sure that is; flags above would say what makes it doubtful."
AT_THE_LIMIT = (
    "Right and faster, and near the least time of its bytes and operations on this card: stop here, or change what it"
    " moves and computes."
)
UNMEASURED = "Right. For a speed-up, give the reference more work a call: larger tensors in its get_inputs()."
INTERPRETED = (
    "Right. Only correctness can be learnt here: an interpreter ran it, and its times say nothing about a GPU."
    " `service` lists the devices."
)
FIXED = (
    "Right, but so are outputs fixed beforehand, so nothing can be learnt from this problem. Choose another, or change"
    " the reference or its inputs so that outputs depend on them."
)
NO_REFERENCE = "It ran. Use compare with a reference to learn whether it is right and faster."
AT_ZERO = "Wrong only where the reference gives 0: a clamp, a mask or a sign differs, not the precision."
NO_NUMBER = "Wrong by a NaN or an infinity on one side: look for an overflow, a division by 0, a log or root below 0."
MOST_OF_SCALE = 0.5
"""Maximum error of a rounding, as a part of the output's root mean square."""
UNSOUND = (
    "The sanitizer found errors in it, which count as much as a wrong result: mend the lines named above first, and"
    " judge it again with sanitize=true."
)
SANDBOX = (
    "The sandbox refuses it: no network, no files but those in its own folder. A kernel works on its arguments alone."
)

_OF_RUNTIME = (
    (r"PermissionError|Operation not permitted|Permission denied|Network is unreachable|URLError|gaierror", SANDBOX),
    (
        r"illegal (?:memory access|address)|misaligned address",
        "An index out of bounds, or a misaligned load: mask loads and stores, and check the strides.",
    ),
    (
        r"ModuleNotFoundError",
        "That module is not installed on the worker: do without it.",
    ),
    (
        r"takes \d+ positional arguments?|missing \d+ required positional|unexpected keyword argument",
        "Arguments do not fit a signature: ModelNew takes what Model takes (get_init_inputs() and get_inputs() go to"
        " both), and a kernel what it is launched with.",
    ),
    (
        r"same device|cannot be accessed from Triton|is on (?:cpu|cuda)",
        "Tensors on two devices: make every one on the device of the inputs (x.device).",
    ),
)
_OF_COMPILING = (
    (
        r"Entry point .* not found|Kernel .* not found",
        "The source has not what is called: define `class ModelNew`, or name what it has with `candidate_entry` (in"
        " evaluate `entry`).",
    ),
    (r"ModuleNotFoundError", "That module is not installed on the worker: do without it."),
)
_OF_COMPARISON = (
    (r"^Shape mismatch", "Return the shape that the reference returns: see both above."),
    (
        r"wrong dtype",
        "Return the dtype that the reference returns: convert the last result with .to().",
    ),
    (r"wrong device", "Return the output on the device of the inputs: allocate it there."),
    (
        r"the kernel 0\b|no outputs to compare|with no tensor and no number",
        "It gave no tensor (None?): return the output.",
    ),
    (r"output tensors, the kernel", "Return as many tensors as the reference, in its order."),
    (r"never written", "Part of the output is never stored: check the grid's size and the mask of the last block."),
    (r"wrote nothing", "The output was not stored at all: check the launch, its grid, and where the kernel stores."),
    (r"wrote outside", "A store goes past the end: mask it at the bound of each dimension."),
    (
        r"^Wrong on ",
        "Right on plain random inputs, wrong on those named above: look for a constant, a clamp, or an overflow.",
    ),
    (
        r"right in another order",
        "The outputs are right: return them in the reference's order, a dict's under its keys.",
    ),
    (
        r"its weights are its own",
        "Name layers and parameters as the reference does, and it is given the reference's weights.",
    ),
    (r"changed its inputs", "Write into a new tensor (or mark the argument inout), never into an input."),
)


def next_step(result: Result, timeout: int | None = None) -> str:
    """One or two sentences; `timeout` is the job's, in s."""
    if (checked := result.sanitizer) is not None and checked.tools_with_findings:
        return UNSOUND
    if result.passed:
        return _passed(result)
    error = result.error or ""
    if result.verdict == "runtime_error":
        return _first(_OF_RUNTIME, error) or "Mend the lines named above and send the whole source again."
    if result.verdict == "compile_error" and (advice := _first(_OF_COMPILING, error)):
        return advice
    if result.verdict == "timeout":
        return _timed_out(result, timeout)
    if result.verdict == "unsupported" and "holds an object of type" in error:
        return "Return tensors or numbers, alone or in tuples, lists and dicts, as the reference does."
    if result.verdict == "wrong_result" and (advice := _wrong(error, result.kernel.comparison)):
        return advice
    return NEXT.get(result.verdict, "Read the error above.") + WITH_TOOLS.get(result.verdict, "")


def _passed(result: Result) -> str:
    if any(flag.code == flags.INTERPRETED for flag in result.kernel.flags):
        return INTERPRETED if result.reference is not None else INTERPRETED.replace("Right. ", "It ran. ")
    if result.reference is None:
        return NO_REFERENCE
    if result.fixed_outputs_pass is not None:
        return FIXED
    if result.speedup is None:
        return UNMEASURED
    if result.speedup.verdict == "faster" and result.headroom.is_near:
        return AT_THE_LIMIT
    return {"faster": FASTER, "slower": SLOWER}.get(result.speedup.verdict, NO_DIFFERENCE)


def _timed_out(result: Result, timeout: int | None) -> str:
    seconds = "" if timeout is None else f" of {timeout} s"
    if not result.kernel.compiled:
        return f"Building it did not end within `timeout`{seconds}: compile less, or raise it (to 600)."
    return f"Its calls did not end within `timeout`{seconds}: look for an endless loop, or raise it (to 600)."


def _wrong(error: str, comparison: Comparison | None) -> str | None:
    if advice := _first(_OF_COMPARISON, error):
        return advice
    where = comparison.mismatch_map if comparison is not None else None
    if comparison is None or where is None:
        return None
    if comparison.max_rel_diff is not None and comparison.max_rel_diff <= (comparison.rtol or 0.0):
        # No relative difference counts an element whose expected value is 0, or a NaN or an infinity.
        return NO_NUMBER if _has_no_number(comparison.first_mismatch or {}) else AT_ZERO
    if _by_little(comparison):
        return "Wrong by little: accumulate in float32, or in the reference's order; else a constant (eps) differs."
    if _share(where) > 0.9:
        return "Nearly every element is wrong: a formula, an axis, or the weights differ, not a bound."
    return _edge(where) or "Compare with the reference at the first mismatch: it is wrong in part, so suspect indexes."


def _has_no_number(first: Mapping[str, object]) -> bool:
    return any(word in str(first.get(side)) for side in ("expected", "actual") for word in ("nan", "inf"))


def _by_little(comparison: Comparison) -> bool:
    """Whether every difference is small relative to its element, and the largest also relative to the whole output."""
    largest = number(member(comparison.precision_check, "candidate_max_error"))
    near = comparison.max_rel_diff is not None and comparison.max_rel_diff < 0.05
    return near and (largest is None or largest < MOST_OF_SCALE)


def _share(where: Mapping[str, object]) -> float:
    rows, columns, count = (where.get(name) for name in ("rows", "columns", "mismatch_count"))
    if isinstance(rows, int) and isinstance(columns, int) and isinstance(count, int) and rows * columns > 0:
        return count / (rows * columns)
    return 0.0


def _edge(where: Mapping[str, object]) -> str | None:
    reach = wrong_ranges(where)
    if reach is None:
        return None
    (top, bottom), (left, right) = reach
    rows, columns = where["rows"], where["columns"]
    if right == columns and left > 0 and top == 0:
        return "Wrong at the end of the rows: the mask or the bound of the last columns."
    if bottom == rows and top > 0:
        return "Wrong in the last rows: the grid is too small, or the bound of the last block is wrong."
    return None


def wrong_ranges(where: Mapping[str, object]) -> tuple[tuple[int, int], tuple[int, int]] | None:
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


def _first(causes: tuple[tuple[str, str], ...], error: str) -> str | None:
    return next((advice for pattern, advice in causes if re.search(pattern, error)), None)
