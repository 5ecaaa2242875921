"""The next step: one imperative sentence for every verdict, cause, state and problem."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from api.http.problems import Kind
from api.pages import next_step
from api.pages.verdict import of_result
from domain.flags.codes import SPEEDUP_UNKNOWN
from domain.kernel_guess import LOOKS_LIKE
from domain.result import Status
from tests.api import results

IMPERATIVES = re.compile(
    "(Accumulate|Ask|Check|Choose|Compare|Compile|Confirm|Correct|Declare|Define|Do|Give|Look|Make|Mask|Name|Pass|Read|Return|Run|"
    "Send|Stop|Submit|Tell|Use|Wait|Work|Write) "
)


def outcome(verdict: str, error: str | None = None, *, compiled: bool = True, **more: Any) -> dict[str, Any]:
    kernel = {"status": verdict, "compiled": compiled, "correctness": verdict == "passed", "validation_error": error}
    return {"job_id": "j", "verdict": verdict, "kernel_exec_result": {**kernel, **more}}


def wrong(message: str, **more: Any) -> dict[str, Any]:
    comparison = {"passed": False, "message": message, "mismatch_count": 9, "element_count": 9, **more}
    return outcome("wrong_result", message, comparison=comparison)


def where(counts: list[list[int]]) -> dict[str, Any]:
    total = sum(map(sum, counts))
    rows, columns = 2 * len(counts), 2 * len(counts[0])
    whole = {"shape": [rows, columns], "output_mismatch_count": total}
    return {
        **whole,
        "output": 0,
        "rows": rows,
        "columns": columns,
        "block": [2, 2],
        "counts": counts,
        "mismatch_count": total,
    }


NOT_BUILT = "importing the source: Error building extension 'lean': main.cpp:13:32: error"
OF_NINJA = "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1."
FAR = {"output": 0, "candidate_error": 1.0, "candidate_max_error": 5.4}
OVERFLOWN = {"output": 0, "index": [0], "expected": 0.5, "actual": "nan"}
FEW_MATRICES = {**where([[4, 4], [4, 4]]), "shape": [8, 4, 4], "output_mismatch_count": 32}
COARSE_REFERENCE = {"output": 0, "candidate_max_error": 0.008, "reference_max_error": 0.034}
INFINITE_ERROR = {"output": 0, "candidate_max_error": 1.0, "reference_max_error": None}
DIAGONAL = where([[1, 0], [0, 1]])


def every_sentence() -> list[str]:
    tables = (next_step.OF_VERDICT, next_step.OF_PROBLEM, next_step.OF_STATUS)
    return [sentence for table in tables for sentence in table.values()] + [
        value
        for name, value in vars(next_step).items()
        if name.isupper() and isinstance(value, str) and name != "GAINS"
    ]


def test_every_verdict_and_problem_has_one() -> None:
    assert set(next_step.OF_VERDICT) == set(Status) - {Status.PASSED}
    assert set(next_step.OF_PROBLEM) == {kind.slug for kind in Kind}


@pytest.mark.parametrize("sentence", [each for each in every_sentence() if each != LOOKS_LIKE])
def test_it_is_imperative(sentence: str) -> None:
    assert IMPERATIVES.match(sentence) and sentence.endswith(".")


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (wrong("Output 0 has the wrong dtype: expected dtype torch.float32"), "Return the dtype"),
        (wrong("Shape mismatch in output 0: expected shape [8], got [4]"), "Return the shape"),
        (wrong("The reference has 1 output tensors, the kernel 0"), "Return the output from the called function"),
        (wrong("of it 9 of the 9 elements of 'out' were never written"), "Check the grid's size and the mask"),
        (outcome("wrong_result", "the kernel changes input tensor 1, and the"), "Write into a new tensor"),
        (outcome("wrong_result", "and the kernel changes it otherwise: 9 of 9"), "Write into that input what"),
        (wrong("Wrong on small inputs (…): 512 of 512 elements"), "Look for a constant, a clamp, or an overflow"),
        (wrong("Outputs", mismatch_map=where([[0, 0, 3], [0, 0, 3]])), next_step.AT_ROW_ENDS),
        (wrong("Outputs", mismatch_map=where([[0, 0, 0], [0, 0, 0], [3, 3, 3]])), next_step.IN_LAST_ROWS),
        (wrong("Outputs", mismatch_map=where([[4, 4], [4, 4]])), next_step.EVERYWHERE),
        (wrong("a factor of 1.05", mismatch_map=where([[3, 2], [2, 3]]), max_rel_diff=0.05), next_step.EVERYWHERE),
        (wrong("Outputs", mismatch_map=DIAGONAL, max_rel_diff=0.02, rtol=0.01), next_step.BY_LITTLE),
        (wrong("Outputs", mismatch_map=DIAGONAL, max_rel_diff=0.02, precision_check=FAR), next_step.IN_PART),
        (wrong("Outputs", mismatch_map=DIAGONAL, max_rel_diff=0.0), next_step.AT_ZERO),
        (wrong("an axis", mismatch_map=where([[4, 0, 4], [0, 4, 0], [4, 0, 4]])), next_step.EVERYWHERE),
        (wrong("a clamped index", mismatch_map=where([[1, 0, 1], [0, 1, 0], [1, 0, 1]])), next_step.SCATTERED),
        (wrong("large elements", mismatch_map=where([[0, 0, 0], [0, 1, 0], [1, 0, 1]])), next_step.IN_PART),
        (wrong("another state", mismatch_map=FEW_MATRICES), next_step.IN_MATRICES),
        (
            wrong("sums", mismatch_map=DIAGONAL, rtol=0.01, precision_check=COARSE_REFERENCE),
            next_step.REFERENCE_ERRS,
        ),
        (wrong("overflow", mismatch_map=DIAGONAL, rtol=0.01, precision_check=INFINITE_ERROR), next_step.IN_PART),
        (wrong("1.05 times", mismatch_map=where([[1] + [0] * 9] + [[0] * 10] * 9)), next_step.FEW),
        (outcome("runtime_error", "arange's arguments must be of type tl.constexpr"), next_step.CONSTEXPR),
        (wrong("O", mismatch_map=where([[1, 0]]), max_rel_diff=0.0, first_mismatch=OVERFLOWN), next_step.NO_NUMBER),
        (outcome("runtime_error", "PermissionError: [Errno 13] no"), next_step.SANDBOX),
        (outcome("runtime_error", "CUDA error: an illegal memory access"), "Mask loads and stores"),
        (
            wrong(
                "O; the reference itself answers the same inputs differently from call to call", mismatch_map=DIAGONAL
            ),
            next_step.RANDOM_REFERENCE,
        ),
        (outcome("runtime_error", "You must implement either the backward or vjp method"), next_step.NO_BACKWARD),
        (
            outcome(
                "runtime_error", "function FBackward returned an incorrect number of gradients (expected 5, got 3)"
            ),
            next_step.COUNT_OF_GRADIENTS,
        ),
        (
            outcome("runtime_error", "Function FBackward returned an invalid gradient at index 1 - got [8, 4] but"),
            next_step.SHAPE_OF_GRADIENTS,
        ),
        (outcome("runtime_error", "its backward gives no gradient for input 1, where"), next_step.NO_BACKWARD),
        (outcome("timeout", "timed out"), "Look for an endless loop, or raise `timeout` (to 600)"),
        (
            outcome("timeout", "timed out", build={"interpreted": True}),
            "Make its shapes smaller, or send it to a worker",
        ),
        (outcome("timeout", "timed out", compiled=False), "Look for an endless loop outside of functions, compile"),
        (
            outcome("compile_error", "Kernel 'relu' not found. The source has: k."),
            "Give a name that the message lists in",
        ),
        (
            outcome("compile_error", "Unsupported ptr type <['1024'], int32> in `tl.load`"),
            "Load and store by addresses",
        ),
        (outcome("compile_error", "Boolean value of Tensor with more than one value is"), "Choose element by element"),
        (outcome("compile_error", "unsupported AST node type: Break (line 7"), "Write it without that statement"),
        (outcome("compile_error", "unsupported tensor index: constexpr[0]"), "Load the element that you need"),
        (
            outcome("compile_error", "Unsupported function referenced: <built-in method relu"),
            "Call only functions of tl",
        ),
        (
            outcome("compile_error", "module 'triton.language' has no attribute 'relu'"),
            "Write it with what tl has",
        ),
        (outcome("compile_error", "NameError('Cannot access global variable ZERO from"), "Pass it as an argument"),
        (outcome("compile_error", "list index out of range (line 5 of the kernel: `z=x.shape[0]`)"), next_step.SIZES),
        (
            outcome("compile_error", "fp32[] is not string (line 5 of the kernel: `print(v)`)"),
            "Print with tl.device_print",
        ),
        (outcome("runtime_error", "'float' object cannot be interpreted as an integer"), "Give whole numbers"),
        (outcome("runtime_error", "calling function run: KeyError: 'complex64'"), "Pass torch.view_as_real(x)"),
        (
            outcome("compile_error", f"{LOOKS_LIKE}CUDA C++: send it as `cuda`"),
            "Send it as the `kernel_type`",
        ),
        (
            outcome("contract_mismatch", 'no argument has `"role": "output"`; give it'),
            "Give the argument that the kernel",
        ),
        (outcome("runtime_error", "cannot assign module before Module.__init__() call"), "Call `super().__init__()`"),
        (outcome("compile_error", "importing the source: SystemExit: 0", compiled=False), "Leave out what ends the"),
        (outcome("contract_mismatch", "argument 'x' is declared with shape [128]"), "Declare that argument with"),
        (outcome("reference_failed", "get_inputs() got an unexpected keyword argument 'n'"), "Name only parameters"),
        (outcome("reference_failed", "Model.forward() missing 1 required positional argument"), "Return an input for"),
        (outcome("reference_failed", "f() missing 1 required keyword-only argument: 'm'"), "Return an input for"),
        (outcome("reference_failed", "get_inputs() yielded 2 sets, and 3 at first"), "Yield as many sets from each"),
        (outcome("reference_failed", "get_inputs() missing 1 required positional argument"), "Give each parameter of"),
        (outcome("reference_failed", "DefaultCPUAllocator: can't allocate memory"), "Make the inputs smaller"),
        (outcome("reference_failed", "validation was skipped"), "Correct the reference"),
        (outcome("reference_failed", "f() takes 2 positional arguments but 4 were given"), "Give the reference a"),
        (outcome("reference_failed", "(unsupported): this worker has no GPU"), next_step.HAS_GPU),
        (outcome("reference_failed", "inputs and outputs take 4096 MiB"), "Make the inputs smaller"),
        (wrong("the output holds an object of type coroutine, which cannot be compared"), next_step.RETURNABLE),
        (outcome("runtime_error", 'ValueError("arange\'s range must be a power of 2")'), "Make the block a power"),
        (outcome("compile_error", "AssertionError: num_warps must be a power of 2"), "Launch with a power of two"),
        (outcome("compile_error", "OutOfResources: out of resource: shared memory"), "Make the blocks smaller"),
        (outcome("runtime_error", "ValueError: Conflicting meta-parameters: BLOCK"), "Leave out of the launch"),
        (outcome("runtime_error", "EOFError: EOF when reading a line"), next_step.SANDBOX),
        (outcome("compile_error", "CalledProcessError: Command '['pip'", compiled=False), next_step.SANDBOX),
        (
            outcome("compile_error", f"{NOT_BUILT}: 'x' was not declared\n{OF_NINJA}", compiled=False),
            "Correct the lines",
        ),
        (outcome("compile_error", "No module named 'task'", compiled=False), "Leave out the import from `task`"),
        (
            outcome("compile_error", "Entry point 'relu' not found; the source defines: class ModelNew"),
            "Give a name that the message lists",
        ),
        (
            outcome("compile_error", "unexpected character after line continuation character (kernel.py, line 1)"),
            next_step.LINE_BREAKS,
        ),
        (outcome("runtime_error", "NameError: name 'np' is not defined"), "Import or define the name"),
        (
            outcome("reference_failed", "constructing class Model: missing 1 required positional argument"),
            "Return the constructor's arguments",
        ),
        (outcome("compile_error", "it holds host code (line 3)", compiled=False), "Send a `__global__` function"),
        (outcome("compile_error", "SyntaxError: invalid syntax (kernel.py, line 1)"), "Correct the first line, or"),
    ],
)
def test_it_goes_by_the_cause(found: dict[str, Any], step: str) -> None:
    assert next_step.of_result(found, 7).startswith(step)


@pytest.mark.parametrize("verdict", ["compile_error", "runtime_error", "wrong_result", "unsupported"])
@pytest.mark.parametrize("unit", ["Kernel ", "Kernel '", "Entry point ", "takes 1", "missing 1", "holds an object of"])
def test_a_long_log_takes_no_time(verdict: str, unit: str) -> None:
    found = outcome(verdict, f"SyntaxError: {unit * 100_000}", compiled=False)
    before = time.process_time()
    assert next_step.of_result(found) == next_step.OF_VERDICT[Status(verdict)]
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize(
    ("verdict", "flags", "step"),
    [
        ("slower", [], next_step.SLOWER),
        ("not_distinguishable", [], next_step.NO_DIFFERENCE),
        ("faster", [], next_step.FASTER),
        ("faster", ["interpreted"], next_step.INTERPRETED),
        (None, [], next_step.UNMEASURED),
        *((None, [code], code.advice) for code in sorted(SPEEDUP_UNKNOWN)),
    ],
)
def test_it_goes_by_the_speed(verdict: str | None, flags: list[str], step: str) -> None:
    timing = {
        "method": "m",
        "latency_ms": 1.0,
        "flags": [{"code": code, "message": code, "data": {}} for code in flags],
    }
    speedup = verdict and {"ratio": 1.0, "ci_low": 0.9, "ci_high": 1.1, "verdict": verdict}
    found = {**outcome("passed", timing=timing), "ref_result": {}, "speedup": speedup}
    assert next_step.of_result(found) == step


def test_a_bound_that_decides_nothing_asks_for_more_work() -> None:
    bound = {"ratio": 0.4, "ci_low": 0.4, "ci_high": None, "verdict": "not_distinguishable"}
    found = {**outcome("passed"), "ref_result": {}, "speedup": bound}
    assert next_step.of_result(found) == next_step.UNMEASURED
    assert next_step.of_result({**found, "speedup": {**bound, "verdict": "faster"}}) == next_step.FASTER


def test_an_interpreters_time_is_not_compared() -> None:
    body = results.passed(0.001)
    body["kernel_exec_result"]["timing"]["flags"] = [{"code": "interpreted", "message": "on the CPU", "data": {}}]
    sentence = of_result(body).sentence
    assert "An interpreter ran it on the CPU" in sentence and "slower" not in sentence
    assert sentence.endswith(" Flagged: interpreted, inputs reused.")


def test_a_kernel_with_other_bits_is_told_how_to_have_the_same() -> None:
    unlike = {"flags": [{"code": "not_deterministic", "message": "output 0 had other bits", "data": {}}]}
    found = {**outcome("passed", determinism=unlike), "ref_result": {}, "speedup": None}
    assert next_step.of_result(found).startswith("Sum in a fixed order")


def test_a_kernel_that_is_right_in_other_cases_has_no_wrong_formula() -> None:
    everywhere = wrong("Outputs", mismatch_map=where([[4, 4], [4, 4]]))
    assert next_step.of_result({**everywhere, "cases": [{"verdict": "wrong_result"}]}) == next_step.EVERYWHERE
    cases = [{"verdict": "passed"}, {"verdict": "wrong_result"}]
    assert next_step.of_result({**everywhere, "cases": cases}) == next_step.IN_SOME_CASES


def test_a_wrong_gradient_is_the_backwards() -> None:
    found = wrong("Outputs", mismatch_map={**where([[4, 4], [4, 4]]), "output": 1})
    found["kernel_exec_result"]["gradients"] = {"compared": ["output 0", "gradient of input 0"]}
    assert next_step.of_result(found) == next_step.BACKWARD
    for output in (0, 2):  # A further case may have more outputs than the first, which are named.
        found["kernel_exec_result"]["comparison"]["mismatch_map"]["output"] = output
        assert next_step.of_result(found) == next_step.EVERYWHERE


def test_a_pass_that_is_worth_nothing() -> None:
    weak = [{"code": "fixed_outputs_pass", "message": "zeros would pass", "data": {}}]
    found = {**outcome("passed", comparison={"weak_reference": weak}), "ref_result": {}}
    assert next_step.of_result(found) == next_step.FIXED
    assert next_step.of_result(outcome("passed")) == next_step.NO_REFERENCE
    near = results.passed(2.0)
    near["kernel_exec_result"]["headroom"] = {"ratio": 1.1}
    assert next_step.of_result(near) == next_step.AT_THE_LIMIT


def test_fields_at_fault_are_named() -> None:
    assert (
        next_step.of_fields(["kernel.io", "kernel.io", "gpu"])
        == "Correct `kernel.io`, `gpu`, and send the request again."
    )
    assert re.fullmatch("Correct the body.*", next_step.of_fields([""]))
