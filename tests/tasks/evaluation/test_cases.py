"""Jobs with several cases on the CPU: one verdict, the case at fault by name, and geometric means of times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.schemas.request import read_compare, read_evaluate
from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Report, Status
from domain.value import leaves
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import judged, kernel

REFERENCE_SOURCE = """
class Model(nn.Module):
    def forward(self, x):
        for _ in range(20): x = torch.cos(x) * 1.5
        return x

def get_inputs(n=64, k=128):
    return [torch.randn(n, k)]
"""
CASES = [{"n": 64}, {"name": "odd", "n": 33}, {"name": "large", "n": 200, "k": 64}]
REQUESTED = [
    {"name": name, "arguments": arguments, "hidden": False, "timed": True}
    for name, arguments in (("n=64", {"n": 64}), ("odd", {"n": 33}), ("large", {"n": 200, "k": 64}))
]
WITH_CASES = f"{REFERENCE_SOURCE}\ndef get_cases():\n    return {CASES}\n"
RIGHT = "for _ in range(20): x = 1.5 * x.cos()\n        return x"


def candidate(body: str, before: str = "") -> dict[str, Any]:
    return kernel(f"{before}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n")


def compared(worker: WorkerContext, body: str, before: str = "", source: str = WITH_CASES, **more: Any) -> Report:
    return judged(worker, candidate(body, before), kernel(source), **({"budget": "quick"} | more))


def verdicts(report: Report) -> dict[str, str | None]:
    return {case["name"]: case["verdict"] for case in report.body("id")["cases"]}


def test_an_honest_kernel_passes_in_all_cases_with_a_time_for_each_and_their_geometric_mean(
    worker: WorkerContext,
) -> None:
    report = compared(worker, RIGHT)
    body = report.body("id")
    assert report.outcome.status is Status.PASSED and set(verdicts(report).values()) == {"passed"}
    assert [case["name"] for case in body["cases"]] == ["n=64", "odd", "large"]
    assert [case["shapes"] for case in body["cases"]] == [[[64, 128]], [[33, 128]], [[200, 64]]]
    timing, times = report.outcome.timing, [case["runtime_ms"] for case in body["cases"]]
    assert timing is not None and codes(timing.flags)[0] is FlagCode.MEAN_OF_CASES
    assert timing.latency_ms == pytest.approx((times[0] * times[1] * times[2]) ** (1 / 3))
    assert timing.windows == sum(case["windows"] for case in body["cases"])
    speedups = [case["speedup"] for case in body["cases"]]
    if None in speedups:  # On a busy host a window may not be told from zero.
        assert report.speedup is None
    else:
        ratios = [speedup["ratio"] for speedup in speedups]
        assert report.speedup is not None
        assert report.speedup.ratio == pytest.approx((ratios[0] * ratios[1] * ratios[2]) ** (1 / 3))
    assert sum(case["time_checked"] for case in body["cases"]) == 1  # At `quick` one secret case.
    assert body["cases_summary"] == {
        "source": "get_cases",
        **{"count": 3, "passed": 3, "judged": 3},
        "hidden": {"count": 0, "passed": 0, "judged": 0},
    }
    assert report.outcome.comparison is not None
    assert report.outcome.comparison.calls > 3 * timing.windows  # Of all cases.


@pytest.mark.parametrize(
    ("body", "named", "wrong"),
    [
        ("rows = {64: 64, 33: 33}.get(len(x), 64); y = x.clone(); y[:rows] = LOOP(x[:rows]); return y", "large", 1),
        ("whole = len(x) // 16 * 16; return torch.cat([LOOP(x[:whole]), x[whole:]])", "odd", 2),
        ("return LOOP(x.bfloat16()).float() if x.numel() > 9000 else LOOP(x)", "large", 1),
    ],
    ids=["hard-coded lengths", "no remainder of a tile", "lower precision above a size"],
)
def test_a_kernel_that_is_wrong_for_some_sizes_is_refused_with_the_case_named(
    worker: WorkerContext, body: str, named: str, wrong: int
) -> None:
    report = compared(worker, body, "def LOOP(x):\n    for _ in range(20): x = torch.cos(x) * 1.5\n    return x\n")
    assert report.outcome.status is Status.WRONG_RESULT
    assert (report.outcome.message or "").startswith(f"case {named!r}: ")
    assert list(verdicts(report).values()).count("wrong_result") == wrong
    assert report.outcome.timing is None and report.speedup is None
    assert all(case["runtime_ms"] is None for case in report.body("id")["cases"])
    assert report.outcome.comparison is not None and report.outcome.comparison.first_mismatch is not None


def test_a_case_in_which_the_kernel_fails_is_named(worker: WorkerContext) -> None:
    report = compared(worker, f"assert len(x) != 33, 'no remainder here'\n        {RIGHT}")
    assert report.outcome.status is Status.RUNTIME_ERROR
    message = report.outcome.message or ""
    assert message.startswith("case 'odd': ") and "no remainder here" in message
    assert verdicts(report)["odd"] == "runtime_error" and verdicts(report)["n=64"] == "passed"


def test_outputs_of_an_earlier_call_or_case_are_wrong(worker: WorkerContext) -> None:
    store = "STORE = {}\ndef LOOP(x):\n    for _ in range(20): x = torch.cos(x) * 1.5\n    return x\n"
    report = compared(worker, "return STORE.setdefault(x.shape, LOOP(x)).clone()", store)
    assert report.outcome.status is Status.WRONG_RESULT and "wrong_result" in verdicts(report).values()


def test_cases_too_large_to_be_repeated_without_the_candidate_say_so(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate could slow its reference in these alone."""
    monkeypatch.setattr("tasks.evaluation.cases.SHARE_KEPT", 0.0)
    report = compared(worker, RIGHT)
    flagged = {case["name"]: "case_not_rerun" in case["flags"] for case in report.body("id")["cases"]}
    assert flagged == {"n=64": False, "odd": True, "large": True}
    assert report.outcome.timing is not None and FlagCode.CASE_NOT_RERUN in codes(report.outcome.timing.flags)


def test_the_candidate_does_not_define_the_cases(worker: WorkerContext) -> None:
    own = "def get_inputs(n=1):\n    return [torch.zeros(n, 1)]\ndef get_cases():\n    return [{'n': 1}]\n"
    report = compared(worker, RIGHT, own)
    assert list(verdicts(report)) == ["n=64", "odd", "large"]


def test_the_request_brings_cases_to_a_source_without_any(worker: WorkerContext) -> None:
    report = compared(worker, RIGHT, source=REFERENCE_SOURCE, cases=REQUESTED)
    assert report.outcome.status is Status.PASSED
    assert [case["shapes"] for case in report.body("id")["cases"]] == [[[64, 128]], [[33, 128]], [[200, 64]]]
    assert report.body("id")["cases_summary"]["source"] == "request"


def test_a_case_that_is_not_timed_is_validated_and_not_part_of_the_mean(worker: WorkerContext) -> None:
    cases = [REQUESTED[0] | {"timed": False}, *REQUESTED[1:]]
    report = compared(worker, RIGHT, source=REFERENCE_SOURCE, cases=cases)
    first, *others = report.body("id")["cases"]
    assert report.outcome.timing is not None and report.outcome.status is Status.PASSED
    assert first["verdict"] == "passed" and first["runtime_ms"] is None
    assert report.outcome.timing.flags[0].data == {"cases": 2}
    assert report.outcome.timing.windows == sum(case["windows"] for case in others)
    report = compared(worker, f"if len(x) == 64: return x * 0\n        {RIGHT}", source=REFERENCE_SOURCE, cases=cases)
    assert report.outcome.status is Status.WRONG_RESULT and "case 'n=64': " in (report.outcome.message or "")


def test_a_kernel_alone_is_timed_for_its_own_cases(worker: WorkerContext) -> None:
    report = judged(worker, kernel(WITH_CASES), budget="quick")
    assert report.outcome.status is Status.PASSED and report.speedup is None
    assert all(case["runtime_ms"] > 0 for case in report.body("id")["cases"])


SECRET = {"name": "secret", "arguments": {"n": 7717, "k": 19}, "hidden": True, "timed": False}


@pytest.mark.parametrize(
    ("body", "status", "passed"),
    [
        (f"print(x.shape)\n        {RIGHT}", Status.PASSED, 1),
        (f"print(x.shape)\n        if len(x) == 7717: return x\n        {RIGHT}", Status.WRONG_RESULT, 0),
        (f"assert len(x) != 7717, x.shape\n        {RIGHT}", Status.RUNTIME_ERROR, 0),
    ],
    ids=["right", "wrong", "fails"],
)
def test_a_hidden_case_is_only_counted(worker: WorkerContext, body: str, status: Status, passed: int) -> None:
    report = compared(worker, body, source=REFERENCE_SOURCE, cases=[*REQUESTED, SECRET])
    answer = report.body("id")
    assert report.outcome.status is status
    assert len(answer["cases"]) == 3 and answer["cases_summary"]["hidden"]["count"] == 1
    assert answer["cases_summary"]["hidden"]["passed"] == passed
    assert not {7717, 7717 * 19, 2 * 7717 * 19} & set(leaves(answer, int))
    text = json.dumps(answer)
    assert not any(told in text for told in ("secret", "7717, 19", "torch.Size", "n=7717"))
    if status is not Status.PASSED:
        assert "hidden case" in (report.outcome.message or "")


def test_a_source_with_hidden_cases_gets_no_profile(worker: WorkerContext) -> None:
    source = f"{REFERENCE_SOURCE}\ndef get_cases():\n    return [{{'n': 5}}, {{'n': 6, 'hidden': True}}]\n"
    report = compared(worker, RIGHT, source=source, profile=True)
    assert report.outcome.status is Status.REFERENCE_FAILED and "leave out" in (report.outcome.message or "")


def test_all_processes_judge_the_same_cases_and_their_results_are_merged(worker: WorkerContext) -> None:
    report = compared(worker, RIGHT, determinism=True)
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    assert len(report.outcome.timing.per_process_ms) == 2
    assert report.cases is not None
    assert [len(result.timing.per_process_ms) for result in report.cases.visible if result.timing] == [2, 2, 2]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("[]", "has to return a list of dicts"),
        ("[3]", "has to return a list of dicts"),
        ("[{'n': 1, 'hidden': True}]", "has no case to time"),
        ("[{'n': i} for i in range(40)]", "1 to 32 cases"),
        ("[{'m': 1}]", "unexpected keyword argument"),
        ("1 // 0", "ZeroDivisionError"),
    ],
)
def test_a_source_whose_cases_are_unusable_fails_with_the_reason(worker: WorkerContext, made: str, told: str) -> None:
    report = compared(worker, RIGHT, source=f"{REFERENCE_SOURCE}\ndef get_cases():\n    return {made}\n")
    assert report.outcome.status is Status.REFERENCE_FAILED and told in (report.outcome.message or "")


@pytest.mark.parametrize("cases", [REQUESTED, REQUESTED[:1]], ids=["several", "one"])
def test_cases_that_no_input_follows_are_refused(cases: list[Any], worker: WorkerContext) -> None:
    source = "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    report = compared(worker, "return x * 2", source=source, cases=cases)
    assert report.outcome.status is Status.REFERENCE_FAILED
    assert "the cases say nothing about the inputs" in (report.outcome.message or "")


def test_a_job_without_cases_has_none_in_its_result(worker: WorkerContext) -> None:
    report = compared(worker, RIGHT, source=REFERENCE_SOURCE)
    assert not {"cases", "cases_summary"} & report.body("id").keys()
    assert report.outcome.timing is not None
    assert FlagCode.MEAN_OF_CASES not in codes(report.outcome.timing.flags)


ADD = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)
"""
UNGUARDED = ADD.replace("inside = at < n", "inside = at < n // BLOCK * BLOCK")


def tensor(name: str, role: str = "input") -> dict[str, Any]:
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": ["N", "K"]}}


def symbolic(grid: str, size: str = "N * K") -> dict[str, Any]:
    block = {"name": "BLOCK", "type": "int", "value": 256, "is_meta": True}
    args = [tensor("x"), tensor("y"), tensor("out", "output"), {"name": "n", "type": "int", "value": size}, block]
    return {"args": args, "launch": {"grid": [grid]}}


@pytest.mark.parametrize("grid", ["cdiv(n, BLOCK)", "cdiv(N * K, BLOCK)"], ids=["by an argument", "by symbols"])
def test_a_triton_contract_follows_the_symbols_of_each_case(worker: WorkerContext, grid: str) -> None:
    cases = [{"N": 16, "K": 64}, {"name": "odd", "N": 7, "K": 13}, {"name": "large", "N": 100, "K": 40}]
    body = {"kernel_type": "triton", "source_code": ADD, "io": symbolic(grid)}
    against = {"kernel_type": "torch", "source_code": "def kernel_fn(x, y):\n    return x + y\n"}
    report = run(read_evaluate({"kernel": body, "cases": cases, "budget": "quick"}), worker)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert [case["shapes"][0] for case in report.body("id")["cases"]] == [[16, 64], [7, 13], [100, 40]]
    for source, status in ((ADD, Status.PASSED), (UNGUARDED, Status.WRONG_RESULT)):
        request = read_pair(against | {"io": body["io"]}, body | {"source_code": source}, cases)
        report = run(request, worker)
        assert report.outcome.status is status, report.outcome.message
    assert (report.outcome.message or "").startswith("case 'odd': ")


def read_pair(reference: dict[str, Any], other: dict[str, Any], cases: list[dict[str, Any]]) -> Request:
    return read_compare({"ref_kernel": reference, "custom_kernel": other, "cases": cases, "budget": "quick"})


def test_only_the_kernel_that_makes_the_inputs_gets_the_arguments() -> None:
    reference = {"kernel_type": "torch", "source_code": REFERENCE_SOURCE}
    request = read_pair(reference, {"kernel_type": "torch", "source_code": "x = 1"}, [{"n": 5}, {"n": 6}])
    kernels = request.kernels
    assert kernels[REFERENCE].case == {"arguments": {"n": 5}} and kernels[CANDIDATE].case is None
    assert Request.from_wire(request.to_wire()) == request
