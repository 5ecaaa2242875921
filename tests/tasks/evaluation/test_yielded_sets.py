"""Jobs on the CPU whose reference yields sets of inputs: each is a case, like those of `get_cases()`."""

from __future__ import annotations

from typing import Any

import pytest

from domain.result import Report, Status
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import forward, judged, kernel

LOOP = "for _ in range(20): x = {} * 1.5\n        return x"
MODEL = f"class Model(nn.Module):\n    def forward(self, x):\n        {LOOP.format('torch.cos(x)')}\n"
SETS = "\ndef get_inputs():\n    for rows in (64, 33, 200):\n        yield [torch.randn(rows, 64)]\n"
RIGHT = LOOP.format("x.cos()")
SHAPES = [[[64, 64]], [[33, 64]], [[200, 64]]]
ONE_CASE = [{"name": "one", "arguments": {"rows": 16}, "hidden": False, "timed": True}]


def compared(worker: WorkerContext, body: str, inputs: str = SETS, **more: Any) -> Report:
    return judged(worker, forward(body), kernel(MODEL + inputs), **({"budget": "quick"} | more))


def test_each_set_is_judged_and_timed_as_a_case(worker: WorkerContext) -> None:
    report = compared(worker, RIGHT, determinism=True)
    body = report.body("id")
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert [(case["name"], case["arguments"]) for case in body["cases"]] == [(f"set {index}", {}) for index in range(3)]
    assert [case["shapes"] for case in body["cases"]] == SHAPES
    assert all(case["runtime_ms"] > 0 for case in body["cases"])
    assert body["cases_summary"]["source"] == "get_inputs" and body["cases_summary"]["passed"] == 3
    assert report.outcome.inputs["inputs_not_random"] is False
    assert report.cases is not None and report.outcome.timing is not None
    assert len(report.outcome.timing.per_process_ms) == 2  # The second process judges the same cases.
    assert [len(result.timing.per_process_ms) for result in report.cases.visible if result.timing] == [2, 2, 2]
    assert report.outcome.determinism is not None and report.outcome.determinism.outputs


def test_a_kernel_that_is_wrong_for_one_set_is_refused_with_the_set_named(worker: WorkerContext) -> None:
    report = compared(worker, f"if len(x) % 2: return x.clone()\n        {RIGHT}")
    assert report.outcome.status is Status.WRONG_RESULT
    assert (report.outcome.message or "").startswith("case 'set 1': ")
    assert [case["verdict"] for case in report.body("id")["cases"]] == ["passed", "wrong_result", "passed"]


def test_outputs_of_an_earlier_call_of_the_same_set_are_wrong(worker: WorkerContext) -> None:
    stored = "STORE = {}\ndef first(x):\n    y = x\n    for _ in range(20): y = torch.cos(y) * 1.5\n    return y\n"
    report = judged(worker, forward("return STORE.setdefault(x.shape, first(x)).clone()", stored), kernel(MODEL + SETS))
    assert report.outcome.status is Status.WRONG_RESULT
    assert report.cases is not None and len(report.cases.results) == 3


def test_one_set_and_a_set_that_is_a_tensor(worker: WorkerContext) -> None:
    report = compared(worker, RIGHT, "\ndef get_inputs():\n    yield torch.randn(64, 32)\n")
    assert report.outcome.status is Status.PASSED
    assert [case["name"] for case in report.body("id")["cases"]] == ["set 0"]


def test_a_kernel_alone_is_timed_for_its_own_sets(worker: WorkerContext) -> None:
    report = judged(worker, kernel(MODEL + SETS), budget="quick", draw_on="host")
    assert report.outcome.status is Status.PASSED and report.outcome.inputs["drawn_on"] == "host"
    assert [case["shapes"] for case in report.body("id")["cases"]] == SHAPES


def test_the_candidate_s_own_sets_are_not_drawn(worker: WorkerContext) -> None:
    own = "\ndef get_inputs():\n    yield [torch.zeros(1, 1)]\n    raise SystemExit\n"
    candidate = kernel(MODEL.replace("Model", "ModelNew") + own)
    report = judged(worker, candidate, kernel(MODEL + SETS), budget="quick")
    assert report.outcome.status is Status.PASSED and [case["shapes"] for case in report.body("id")["cases"]] == SHAPES


def test_gradients_are_compared_in_each_set(worker: WorkerContext) -> None:
    mean = """
class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean(1)
    @staticmethod
    def backward(ctx, g):
        return (g / ctx.shape[{}])[:, None].expand(ctx.shape)
def kernel_fn(x):
    return Mean.apply(x)
"""
    sets = "\ndef get_inputs():\n    yield torch.randn(32, 32)\n    yield torch.randn(8, 48)\n"
    reference = kernel("def kernel_fn(x):\n    return x.mean(1)" + sets)
    for axis, verdicts in ((1, ["passed", "passed"]), (0, ["passed", "wrong_result"])):
        report = judged(
            worker, kernel(mean.format(axis)), reference, gradients=True, budget="quick", atol=None, rtol=None
        )
        assert [case["verdict"] for case in report.body("id")["cases"]] == verdicts, report.outcome.message


@pytest.mark.parametrize(
    ("inputs", "more", "told"),
    [
        (SETS.replace("()", "(rows=1)", 1), {"cases": ONE_CASE}, "yielded several sets for one case"),
        (f"{SETS}\ndef get_cases():\n    return [{{}}]\n", {}, "yielded several sets for one case"),
        ("\ndef get_inputs():\n    return iter(())\n", {}, "yielded no set of inputs"),
        ("\ndef get_inputs():\n    yield torch.randn(4)\n    raise SystemExit\n", {}, "making cases: SystemExit"),
        ("\ndef get_inputs():\n    while True: yield [torch.randn(4)]\n", {}, "more than 32 sets"),
        ("\ndef get_inputs():\n    yield torch.randn(4), torch.randn(4)\n", {}, "cannot be called with so many"),
        (
            "\ndef get_inputs():\n    yield from (torch.randn(int(n)) for n in torch.randint(1, 9, (2,)))",
            {},
            "of one form",
        ),
        (
            "\ndef get_inputs():\n    yield from [torch.randn(4)] * int(torch.randint(1, 30, ()))",
            {},
            "at first: each is",
        ),
    ],
)
def test_sets_that_are_no_cases_are_the_reference_s_fault(
    worker: WorkerContext, inputs: str, more: dict[str, Any], told: str
) -> None:
    report = compared(worker, RIGHT, inputs, **more)
    assert report.outcome.status is Status.REFERENCE_FAILED and told in (report.outcome.message or "")


def test_a_case_of_the_request_takes_the_one_set_that_its_arguments_yield(worker: WorkerContext) -> None:
    inputs = "\ndef get_inputs(rows):\n    yield [torch.randn(rows, 8)]\n"
    report = compared(worker, RIGHT, inputs, cases=ONE_CASE)
    assert report.outcome.status is Status.PASSED
    assert [case["shapes"] for case in report.body("id")["cases"]] == [[[16, 8]]]


def test_processes_that_yield_other_numbers_of_sets_are_told(worker: WorkerContext) -> None:
    # As of a source that asks for the time: seven numbers, so that hardly ever two processes have the same.
    inputs = "\nimport time\nCOUNT = 1 + time.time_ns() // 100 % 7\n" + SETS.replace(
        "(64, 33, 200)", "range(1, 1 + COUNT)"
    )
    for _ in range(8):
        report = compared(worker, RIGHT, inputs, determinism=True)
        if report.outcome.status is not Status.PASSED:
            break
    assert report.outcome.status is Status.REFERENCE_FAILED
    assert "get_inputs() gave other cases in another process" in (report.outcome.message or "")


def test_a_keyword_only_parameter_is_the_same_on_both_sides(worker: WorkerContext) -> None:
    inputs = "\ndef get_inputs():\n    return {'x': torch.randn(64, 32), 'mask': torch.rand(64, 32)}\n"
    reference = "def kernel_fn(x, *, eps=1e-5, mask):\n    return x.cos() * mask + eps"
    for source, status in (
        ("def kernel_fn(x, *, block=64, mask):\n    return x.cos() * mask + 1e-5", Status.PASSED),
        ("def kernel_fn(x, mask):\n    return x.cos() * mask + 1e-5", Status.PASSED),
        ("def kernel_fn(x, *, mask):\n    return x.cos() + mask", Status.WRONG_RESULT),
    ):
        report = judged(worker, kernel(source), kernel(reference + inputs), budget="quick")
        assert report.outcome.status is status, report.outcome.message


def test_a_replayed_job_has_the_same_sets(worker: WorkerContext) -> None:
    wrong = f"if len(x) == 33: return x.clone()\n        {RIGHT}"
    again, other = ({"replay_seed": "5eed"}, {})
    first, second, third = (compared(worker, wrong, **more).outcome.comparison for more in (again, again, other))
    assert first is not None and second is not None and third is not None
    assert first.first_mismatch == second.first_mismatch != third.first_mismatch
