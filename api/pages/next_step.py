"""The next step as one imperative sentence: by the verdict and its cause, by a job's state, and by a problem's kind.

HTTP, the report, the command line and the tools for agents all show these sentences; docs/errors.md prints the tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from api.pages import sanitizer
from api.pages.heat_map import heat_map
from api.pages.stored_record import AGAIN, read_or
from domain.flags.codes import SPEEDUP_UNKNOWN, FlagCode
from domain.job import State
from domain.kernel_guess import LOOKS_LIKE
from domain.result import Status
from tasks.jobs.job_view import JobView

Result = Mapping[str, Any]

OF_VERDICT = {
    Status.COMPILE_ERROR: "Correct the lines that the error names, and send the whole source again.",
    Status.RUNTIME_ERROR: "Correct the lines that the error names, and send the whole source again.",
    Status.WRONG_RESULT: "Compare with the reference at the first mismatch, which `comparison` has.",
    Status.TIMEOUT: "Look for a loop or a wait without an end, or raise `timeout`.",
    Status.CRASHED: "Look for writes out of bounds, and for code that ends the process.",
    Status.OUT_OF_MEMORY: "Make tensors and intermediate results smaller, or work block by block.",
    Status.UNSUPPORTED: "Do what the message says, or choose a worker that can run it: `GET /health` lists them.",
    Status.CONTRACT_MISMATCH: "Give `io` the names, the order and the types of the kernel's own parameters.",
    Status.REFERENCE_FAILED: "Correct the reference, or choose another: the kernel itself was not judged.",
}
"""By verdict alone, where the cause has no sentence of its own."""

OF_PROBLEM = {
    "invalid-request": "Correct the fields that `errors` names, and send the request again.",
    "key-required": "Send the header `Authorization: Bearer <key>` with a key that the service's operator gave you.",
    "scope-missing": "Ask the service's operator for a key with that scope.",
    "local-only": "Run it on the service's own machine, or have the operator set REQUIRE_API_KEYS.",
    "unknown-batch": "Check the id, or send the batch again: jobs are kept for a day (JOB_TTL).",
    "unknown-job": "Check the id with `GET /jobs`, or submit it again: jobs are kept for a day (JOB_TTL).",
    "unknown-artifact": "Choose one of those that `GET /job/<id>/artifacts` lists.",
    "unsupported-media-type": "Send the body as plain JSON, with the header `Content-Type: application/json`.",
    "idempotency-key-reused": "Choose a new Idempotency-Key, or send the first request again.",
    "no-such-gpu": "Name one of the models that the message lists, or leave `gpu` out.",
    "body-late": "Send the request again, with its whole body at once.",
    "job-cancelled": "Submit it again if you still want the verdict.",
    "job-not-completed": "Wait for the verdict with `GET /job/<id>?wait=60`, or submit the job again.",
    "nothing-to-confirm": "Confirm a comparison that passed with a speed-up; this one has none.",
    "request-gone": "Submit the request again yourself.",
    "too-many-requests": "Wait for `Retry-After` seconds; then ask with `?wait=60` instead of again and again.",
    "too-many-jobs": "Wait until one of your jobs has ended, then send it again.",
    "key-records-full": "Wait until jobs of this key have expired, then send it again.",
    "job-failed": "Submit it again: the service failed, not the kernel.",
    "queue-full": "Wait for `Retry-After` seconds, then send it again.",
    "records-full": "Wait until jobs have expired, then send it again.",
    "broker-unreachable": "Wait for `Retry-After` seconds, then send it again.",
    "waiters-full": "Ask again without `wait`, or after `Retry-After` seconds.",
    "draining": "Wait until the service is back, then send it again.",
    "gpu-away": "Send it again later, or leave `gpu` out.",
    "bodies-full": "Wait for `Retry-After` seconds, then send it again.",
    "keys-unreadable": "Tell the service's operator: its log has the cause.",
}
"""By the kind of a problem; its `type` ends in these names."""
OF_STATUS = {
    404: "Choose a path that `GET /openapi.json` lists.",
    405: "Use one of the methods that the message lists.",
    413: "Send a smaller body: split a batch, or compress tensors.",
    500: "Tell the service's operator: its log has the cause.",
}
"""By the status of a problem without a kind of its own."""

GAINS = "use fewer passes over memory (fuse steps), wider loads and larger tiles; `device_metrics` says what limits it"
SLOWER = f"Make it faster than the reference: {GAINS}."
NO_DIFFERENCE = f"Make it faster: {GAINS}."
FASTER = "Read the flags, if there are any, for what makes the speed-up doubtful."
AT_THE_LIMIT = "Stop here, or change what it moves and computes: its time is near the least time of that on this card."
UNMEASURED = "Give the reference more work a call for a speed-up: larger tensors in its get_inputs()."
INTERPRETED = (
    "Send it to a worker with a GPU for a time: an interpreter ran it here, so only its outputs were judged "
    "(`GET /health` lists the workers)."
)
FIXED = (
    "Choose another problem, or make the reference's outputs depend on its inputs: here outputs fixed beforehand are "
    "right too."
)
NO_REFERENCE = "Send it to `/compare` with a reference to learn whether it is right and faster."
NEAR = 1.25
"""Ratio of a time to the least time of its work up to which little is left to gain (docs/api.md, "Headroom")."""
MIN_BLOCKS = 4
"""Number of blocks of a map that show how wrong elements are spread."""
MAX_ROUNDING = 0.5
"""Maximum error of a rounding, as a part of the output's root mean square."""
MAX_LITTLE = 0.05
"""Relative difference up to which an output is wrong by little."""
UNSOUND = (
    "Correct the lines that the sanitizer names first: they count as much as a wrong result. Then send it again with "
    "`sanitize`."
)
SANDBOX = "Work on the arguments alone: the sandbox has no network, no input and no files but the kernel's own folder."
LACKING_MODULE = "Do without that module: it is not installed on the worker."
HAS_GPU = "Send it to a worker with a GPU: `GET /health` lists the workers."
OUTPUT_ROLE = 'Give the argument that the kernel writes `"role": "output"`.'
RETURNABLE = "Return tensors or numbers, alone or in tuples, lists and dicts, as the reference does."

MAX_CAUSE = 8192
"""Characters of an error that are searched for its cause: its message. A log after it may have a mebibyte."""

_Causes = tuple[tuple[str, str], ...]
_OF_TYPE: _Causes = ((LOOKS_LIKE, "Send it as the `kernel_type` that the message names."),)
SIZES = "Pass sizes and strides as arguments: in a kernel a tensor is only the address of its first element."
CONSTEXPR = "Declare that parameter of the kernel as `name: tl.constexpr`."
LINE_BREAKS = "Send real line breaks: the source has a backslash and an n in their place."
FENCE = "Send only the code between the two lines of ```."
# In the first line alone: a failed build's traceback has a CalledProcessError of ninja's.
_ANYWHERE: _Causes = (
    (
        r"^.*(?:PermissionError|Operation not permitted|Permission denied|Network is unreachable|URLError|gaierror"
        r"|EOFError|FileNotFoundError|CalledProcessError)",
        SANDBOX,
    ),
    (
        r"^.*No module named 'task'",
        "Leave out the import from `task`, or send GPU MODE's whole folder by `kernel-eval suite FOLDER`.",
    ),
    (r"^.*ModuleNotFoundError", LACKING_MODULE),
    (r"^.*NameError", "Import or define the name that the message gives."),
    (r"^.*SystemExit", "Leave out what ends the program: the source is imported, and what it defines is called."),
)
_OF_TRITON: _Causes = (
    (
        r"Unsupported ptr type",
        "Load and store by addresses: a tensor's argument plus offsets. Pass the tensor itself at the launch, not its "
        "data_ptr().",
    ),
    (r"Boolean value of Tensor with more than one value", "Choose element by element with tl.where, or by a mask."),
    (
        r"unsupported AST node type",
        "Write it without that statement: bounds of loops, masks and tl.where take the place of break and lambda.",
    ),
    (
        r"unsupported tensor index",
        "Load the element that you need, or pick it by a sum over a mask: a block has only None and : as indexes.",
    ),
    (r"Unsupported function referenced", "Call only functions of tl, and of @triton.jit, in a @triton.jit function."),
    (
        r"module 'triton\.language' has no attribute",
        "Write it with what tl has (tl.maximum, tl.exp); tanh and others are in triton.language.extra.libdevice.",
    ),
    (
        r"Cannot access global variable",
        "Pass it as an argument, or make it a constant of the module: NAME = tl.constexpr(value).",
    ),
    (r"list index out of range \(line \d+ of the kernel: .*\.shape\[", SIZES),
    (r"is not string \(line \d+ of the kernel: `print\(", "Print with tl.device_print('text', value)."),
    (r"must be of type tl\.constexpr|must be constexpr", CONSTEXPR),
    (r"num_warps must be a power of 2", "Launch with a power of two as num_warps, at most 32."),
    (r"must be a power of 2", "Make the block a power of two (triton.next_power_of_2), and mask what lies beyond."),
    (r"out of resource: shared memory", "Make the blocks smaller, or num_stages: a block has less shared memory."),
    (r"Conflicting meta-parameters", "Leave out of the launch what the autotuner's configurations set."),
)
"""Steps by Triton's messages about a kernel before or while it compiles it, and about its launch."""
NO_BACKWARD = "Write the backward that the message misses, or leave out `gradients` to have the outputs judged alone."
COUNT_OF_GRADIENTS = "Return from the backward a gradient, or None, for each argument of the forward."
SHAPE_OF_GRADIENTS = "Give each gradient the shape of its input: sum it over the dimensions that were broadcast."
_OF_RUNTIME: _Causes = (
    (
        r"has no backward there|its backward gives no gradient|must implement either the backward|no autograd formula",
        NO_BACKWARD,
    ),
    (r"returned an incorrect number of gradients", COUNT_OF_GRADIENTS),
    (r"returned an invalid gradient at index", SHAPE_OF_GRADIENTS),
    (r"before Module\.__init__\(\) call", "Call `super().__init__()` first in the constructor."),
    *_OF_TRITON,
    (
        r"'float' object cannot be interpreted as an integer",
        "Give whole numbers as sizes and grids: divide by // or triton.cdiv, not by /.",
    ),
    (r"KeyError: 'complex", "Pass torch.view_as_real(x): Triton has no complex numbers."),
    (
        r"illegal (?:memory access|address)|misaligned address",
        "Mask loads and stores, and check the strides: an index is out of bounds, or a load is misaligned.",
    ),
    (
        r"takes \d+ positional arguments?|missing \d+ required (?:positional|keyword)|unexpected keyword argument",
        "Check the arguments of the call that the message names; ModelNew gets get_init_inputs() and get_inputs() as "
        "the reference does, and returns the output.",
    ),
    (
        r"same device|cannot be accessed from Triton|is on (?:cpu|cuda)",
        "Make every tensor on the device of the inputs (x.device).",
    ),
)
_OF_COMPILING: _Causes = (
    (r"is Markdown's", FENCE),
    *_OF_TRITON,
    (
        r"Entry point '[^'\n]*' not found; the source defines: (?!nothing)",
        "Give a name that the message lists in metadata (class_name, function_name), or none.",
    ),
    (
        r"Kernel '[^'\n]*' not found\. The source has: ",
        "Give a name that the message lists in metadata.kernel_name, or none.",
    ),
    (
        r"(?:Entry point|Kernel) '[^'\n]*' not found|nothing callable",
        "Define `class ModelNew` or `kernel_fn`, or name what the source has in metadata (class_name, function_name).",
    ),
    (
        r"holds host code|no __global__",
        "Send a `__global__` function alone, or name the host function that launches it in metadata.entry_point.",
    ),
    (r"unexpected character after line continuation character \(kernel\.py, line 1\)", LINE_BREAKS),
    (
        r"SyntaxError: invalid syntax \(kernel\.py, line 1\)",
        "Correct the first line, or send the text of the source alone: no prose before it, no path, no base64.",
    ),
)
_OF_CONTRACT: _Causes = (
    (r"no argument has `\"role", OUTPUT_ROLE),
    (r"is declared with shape", "Declare that argument with the shape and the dtype of the reference's tensor."),
)
_OF_UNSUPPORTED: _Causes = (
    (r"holds an object of type", RETURNABLE),
    (r"no (?:CUDA device|GPU)", HAS_GPU),
)
_OF_REFERENCE: _Causes = (
    (r"no (?:CUDA device|GPU)", HAS_GPU),
    (
        r"inputs and outputs take|allocate memory|out of memory",
        "Make the inputs smaller, or send it to a worker with more memory.",
    ),
    (r"get_inputs\(\) got an unexpected keyword", "Name only parameters of the reference's get_inputs() in `cases`."),
    (
        r"the cases say nothing about the inputs",
        "Give the reference a get_inputs() with a parameter for each name in `cases`.",
    ),
    (r"get_inputs\(\) yield", "Yield as many sets from each call of get_inputs(), each with all arguments of a call."),
    (
        r"get_inputs\(\) missing",
        "Give each parameter of the reference's get_inputs() a default, or a value in every case.",
    ),
    (
        r"constructing class",
        "Return the constructor's arguments as a list, in its order, from the reference's get_init_inputs().",
    ),
    (
        r"missing \d+ required (?:positional|keyword)",
        "Return an input for each parameter of the reference from its get_inputs().",
    ),
    (
        r"takes \d+ positional arguments?",
        "Give the reference a parameter for each input. In a contract give the argument that the kernel writes "
        '`"role": "output"`.',
    ),
)
RANDOM_REFERENCE = "Make the reference give one answer: seed it in forward, or call eval() in its constructor."
_OF_COMPARISON: _Causes = (
    (r"the reference itself answers the same inputs differently", RANDOM_REFERENCE),
    (r"holds an object of type", RETURNABLE),
    (r"^Shape mismatch", "Return the shape that the reference returns."),
    (r"wrong dtype", "Return the dtype that the reference returns: convert the last result with .to()."),
    (r"wrong device", "Return the output on the device of the inputs: allocate it there."),
    (
        r"the kernel 0\b|no outputs to compare|with no tensor and no number",
        "Return the output from the called function: the call returned nothing to compare, such as None.",
    ),
    (r"output tensors, the kernel", "Return as many tensors as the reference, in its order."),
    (
        r"never written|still hold the fill",
        "Check the grid's size and the mask of the last block: part of the output is never stored.",
    ),
    (r"wrote nothing", "Check the launch, its grid, and where the kernel stores: nothing was stored at all."),
    (r"wrote outside", "Mask each store at the bound of each dimension: one goes past the end."),
    (
        r"^Wrong on ",
        "Look for a constant, a clamp, or an overflow: it is right on plain random inputs, and wrong on those named.",
    ),
    (r"right in another order", "Return the outputs in the reference's order, a dict's under its keys."),
    (
        r"its weights are its own",
        "Name layers and parameters as the reference does, so that it gets the reference's weights.",
    ),
    (
        r"changed its inputs|the kernel changes input",
        "Write into a new tensor (or mark the argument inout), never into an input.",
    ),
    (r"changes it otherwise", "Write into that input what the reference writes there, or leave it as it is."),
)
AT_ZERO = "Look for a clamp, a mask or a sign, not the precision: it is wrong only where the reference gives 0."
NO_NUMBER = "Look for an overflow, a division by 0, a log or root below 0: one side has a NaN or an infinity."
BY_LITTLE = (
    "Accumulate in float32, or in the reference's order; else look for another constant (eps): it is wrong by little."
)
EVERYWHERE = "Check the formula, the axis, the scale and the weights: it is wrong everywhere, so no bound is at fault."
AT_ROW_ENDS = "Check the mask or the bound of the last columns: it is wrong at the end of the rows."
IN_LAST_ROWS = "Check the grid's size, and the bound of the last block: it is wrong in the last rows."
SCATTERED = (
    "Check the indexes, and conditions on values; then the formula, the scale and the weights: it is wrong in places "
    "all over."
)
IN_MATRICES = (
    "Check the indexes and bounds of the dimensions before the last two: some matrices are wrong, others right."
)
IN_SOME_CASES = (
    "Check what depends on the sizes (blocks, tails, branches, hard-coded lengths): it is right in other cases."
)
BACKWARD = "Check the backward (each term, sums over broadcast dimensions, what is saved): a gradient is wrong."
IN_PART = "Compare with the reference at the first mismatch, and check the indexes: it is wrong in part."
REFERENCE_ERRS = "Make the reference accumulate in float32: float64 says that it errs, and the kernel much less."
FEW = "Compare with the reference at the first mismatch: few elements are wrong, by a rounding, a scale or an index."
MAX_FEW = 0.01
"""Share of wrong elements up to which they are few."""
MIN_SPREAD, MIN_DENSE = 0.05, 0.4
"""Share of wrong elements from which they lie all over, and from which they are the rule where they lie."""
MIN_RATIO = 2.0
"""Minimum ratio of the reference's largest error to the kernel's from which the reference is at fault."""


def of_result(result: Result, timeout: int | None = None) -> str:
    """The next step after a verdict; `timeout` is the job's, in s."""
    status, kernel = Status(result["verdict"]), result["kernel_exec_result"]
    if sanitizer.error_summary(kernel):
        return UNSOUND
    if status is Status.PASSED:
        return _passed(result, kernel)
    if status is Status.TIMEOUT:
        return _timed_out(kernel, timeout)
    error = kernel.get("compilation_error") or kernel.get("validation_error") or ""
    if advice := _by_cause(status, error):
        return advice
    if status is Status.WRONG_RESULT and any(case["verdict"] == "passed" for case in result.get("cases") or ()):
        return IN_SOME_CASES
    return (_wrong(kernel) if status is Status.WRONG_RESULT else None) or OF_VERDICT[status]


def in_list(view: JobView) -> str | None:
    """The next step with a job whose result was not read, by the first line of its error; None for a pass."""
    if view.summary is None:
        return of_job(view)
    status = Status(view.summary.verdict)
    return None if status is Status.PASSED else _by_cause(status, view.summary.error or "") or OF_VERDICT[status]


def _by_cause(status: Status, error: str) -> str | None:
    causes = {
        Status.RUNTIME_ERROR: _OF_TYPE + _OF_RUNTIME + _ANYWHERE,
        Status.COMPILE_ERROR: _OF_TYPE + _OF_COMPILING + _ANYWHERE,
        Status.REFERENCE_FAILED: _OF_REFERENCE,
        Status.CONTRACT_MISMATCH: _OF_TYPE + _OF_CONTRACT,
        Status.UNSUPPORTED: _OF_UNSUPPORTED,
        Status.WRONG_RESULT: _OF_COMPARISON,
    }.get(status, ())
    message = error[:MAX_CAUSE]
    return next((advice for pattern, advice in causes if re.search(pattern, message)), None)


def of_job(view: JobView) -> str:
    match view.state:
        case State.COMPLETED:
            return read_or(lambda: of_result(view.result or {}, view.timeout), AGAIN)
        case State.FAILED:
            return f"Submit it again (`POST /job/{view.job_id}/again`): the service failed, not the kernel."
        case State.CANCELLED:
            return f"Submit it again (`POST /job/{view.job_id}/again`) if you still want the verdict."
    return f"Wait for the verdict with `GET /job/{view.job_id}?wait=60`."


def of_fields(names: list[str]) -> str:
    """The next step where these fields of a request are at fault."""
    listed = ", ".join(f"`{name}`" for name in dict.fromkeys(names) if name)
    return f"Correct {listed}, and send the request again." if listed else "Correct the body, and send it again."


def _passed(result: Result, kernel: Result) -> str:
    reference, comparison = result.get("ref_result"), kernel.get("comparison") or {}
    if FlagCode.FIXED_OUTPUTS_PASS in _codes(comparison.get("weak_reference")):
        return FIXED
    if FlagCode.INTERPRETED in _codes((kernel.get("timing") or {}).get("flags")):
        return INTERPRETED
    if reference is None:
        return NO_REFERENCE
    if FlagCode.NOT_DETERMINISTIC in _codes((kernel.get("determinism") or {}).get("flags")):
        return FlagCode.NOT_DETERMINISTIC.advice
    flagged = _codes((kernel.get("timing") or {}).get("flags"))
    if (unknown := next((code for code in flagged if code in SPEEDUP_UNKNOWN), None)) is not None:
        return FlagCode(unknown).advice
    speedup = result.get("speedup")
    only_a_bound = speedup is not None and speedup["ci_high"] is None and speedup["verdict"] != "faster"
    if speedup is None or only_a_bound:
        return UNMEASURED
    ratio = (kernel.get("headroom") or {}).get("ratio")
    if speedup["verdict"] == "faster" and ratio is not None and ratio <= NEAR:
        return AT_THE_LIMIT
    return {"faster": FASTER, "slower": SLOWER}.get(speedup["verdict"], NO_DIFFERENCE)


def _codes(flags: Any) -> Iterator[str]:
    return (flag["code"] for flag in flags or ())


def _timed_out(kernel: Result, timeout: int | None) -> str:
    limit = "the time limit" if timeout is None else f"{timeout} s"
    if not kernel.get("compiled"):
        return (
            "Look for an endless loop outside of functions, compile less, or raise `timeout` (to 600): building it did "
            f"not end within {limit}."
        )
    if (kernel.get("build") or {}).get("interpreted"):
        return (
            "Make its shapes smaller, or send it to a worker with a GPU: an interpreter ran it here, which is slow, "
            f"and its calls did not end within {limit}."
        )
    return f"Look for an endless loop, or raise `timeout` (to 600): its calls did not end within {limit}."


def _wrong(kernel: Result) -> str | None:
    comparison = kernel.get("comparison") or {}
    where = comparison.get("mismatch_map")
    if not where:
        return None
    difference = comparison.get("max_rel_diff")
    if difference is not None and difference <= (comparison.get("rtol") or 0.0):
        # No relative difference counts an element whose expected value is 0, or a NaN or an infinity.
        return NO_NUMBER if _has_no_number(comparison.get("first_mismatch") or {}) else AT_ZERO
    precision = comparison.get("precision_check") or {}
    # None where it was not finite.
    largest, of_reference = precision.get("candidate_max_error"), precision.get("reference_max_error") or 0.0
    if largest is not None and of_reference > max(MIN_RATIO * largest, comparison.get("rtol") or 0.0):
        return REFERENCE_ERRS
    if difference is not None and difference < MAX_LITTLE and (largest is None or largest < MAX_ROUNDING):
        return BY_LITTLE
    names = (kernel.get("gradients") or {}).get("compared") or []
    if "".join(names[where["output"] :][:1]).startswith("gradient"):  # A further case may have more outputs.
        return BACKWARD
    return _by_place(where)


def _has_no_number(first: Result) -> bool:
    return any(word in str(first.get(side)) for side in ("expected", "actual") for word in ("nan", "inf"))


def _by_place(where: Result) -> str | None:
    clusters = heat_map(where)
    if clusters is None:
        return None
    rows, columns = where["rows"], where["columns"]
    (top, bottom), (left, right) = clusters.rows, clusters.columns
    blocks, share = sum(map(len, where["counts"])), where["mismatch_count"] / max(rows * columns, 1)
    all_over = (top, left, bottom, right) == (0, 0, rows - 1, columns - 1)
    if share > 0.9 or len(clusters.cells) == blocks > 1 or (all_over and share > MIN_SPREAD and blocks > MIN_BLOCKS):
        if share > 0.9 and _share_of_output(where) < MIN_DENSE:
            return IN_MATRICES
        return EVERYWHERE if share > MIN_DENSE else SCATTERED
    if share <= MAX_FEW:
        return FEW
    if where["mismatch_count"] < MIN_DENSE * (bottom - top + 1) * (right - left + 1):
        return IN_PART
    if right == columns - 1 and left > 0 and top == 0:
        return AT_ROW_ENDS
    if bottom == rows - 1 and top > 0:
        return IN_LAST_ROWS
    return IN_PART


def _share_of_output(where: Result) -> float:
    return float(where["output_mismatch_count"]) / max(math.prod(where["shape"]), 1)
