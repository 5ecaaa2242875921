"""The reference under torch.compile as a baseline, on the CPU: real builders, runners and Inductor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from domain.speed.baseline import Baseline
from tasks.evaluation.baselines import with_baselines
from tasks.evaluation.pipeline import run
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import forward, kernel

BOTH = {"baselines": ["eager", "compile"], "budget": "quick", "num_trials": 5, "timeout": 300}

INPUTS = "\ndef get_inputs():\n    return [torch.randn(1024, 1024)]\n"


def reference(body: str, before: str = "", decorator: str = "") -> dict[str, Any]:
    """A model that takes long enough to have a speed-up on a busy CPU."""
    lines = [
        decorator,
        "def forward(self, x):",
        f"    {before}",
        "    for _ in range(16):",
        "        x = x.cos()",
        f"    {body}",
    ]
    method = "\n    ".join(line for line in lines if line.strip())
    return kernel(f"{MODULES}class Model(nn.Module):\n    {method}\n{INPUTS}")


MODULES = "import torch._dynamo\n\n"
WHOLE = reference("return torch.softmax(x, -1)")
BREAKS = reference("return torch.softmax(x, -1)", before='print(end="")')
NOT_A_GRAPH = reference("return torch.softmax(x, -1)", decorator="@torch._dynamo.disable")
OTHER_ONCE_COMPILED = reference("return torch.softmax(x, -1) + torch.compiler.is_compiling()")
RIGHT = forward("for _ in range(16): x = x.cos()\n        return torch.softmax(x, -1)")


def compared(worker: WorkerContext, candidate: dict[str, Any], reference: dict[str, Any], **more: Any) -> Report:
    return run(Request.from_wire({"kernel": candidate, "reference": reference, **BOTH, **more}), worker)


def test_both_times_and_both_speedups(worker: WorkerContext) -> None:
    told: list[bool] = []
    request = Request.from_wire({"kernel": RIGHT, "reference": WHOLE, **BOTH})
    body = run(request, worker, JobCallbacks(on_interim_result=told.append)).body("j")
    eager, compiled = body["baselines"]
    assert (body["verdict"], told) == ("passed", [True, True]), "no interim verdict is the baseline's"
    assert (eager["name"], eager["speedup"], eager["unavailable"]) == ("eager", body["speedup"], None)
    assert eager["latency_ms"] == body["ref_result"]["timing"]["latency_ms"]
    assert (compiled["name"], compiled["unavailable"], compiled["graph_breaks"]) == ("compile", None, 0)
    speedup = compiled["speedup"]
    assert compiled["latency_ms"] > 0 and speedup["ci_low"] < speedup["ratio"] < speedup["ci_high"]
    assert body["kernel_exec_result"]["inputs"]["fresh_sets"] > 0


def test_a_compilation_without_end_names_the_setting_that_allows_more(worker: WorkerContext) -> None:
    request = Request.from_wire({"kernel": RIGHT, "reference": WHOLE, **BOTH, "build_timeout": 30})
    passed = run(replace(request, baselines=(Baseline.EAGER,)), worker)
    late = replace(passed, outcome=replace(passed.outcome, status=Status.TIMEOUT, compiled=False))
    compiled = with_baselines(passed, request, lambda _: late).body("j")["baselines"][1]
    message = "torch.compile did not end within 30 s; raise `build_timeout`"
    assert compiled["unavailable"] == {"code": "timeout", "message": message}


@pytest.mark.slow
def test_a_call_that_leaves_the_graph_says_how_often(worker: WorkerContext) -> None:
    compiled = compared(worker, RIGHT, BREAKS).body("j")["baselines"][1]
    assert compiled["unavailable"] is None and compiled["graph_breaks"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("task", "code"), [(NOT_A_GRAPH, "compile_error"), (OTHER_ONCE_COMPILED, "wrong_result")])
def test_what_torch_compile_cannot_do_is_no_fault_of_the_kernel(
    worker: WorkerContext, task: dict[str, Any], code: str
) -> None:
    body = compared(worker, RIGHT, task).body("j")
    compiled = body["baselines"][1]
    assert body["verdict"] == "passed" and body["speedup"] is not None
    assert (compiled["unavailable"]["code"], compiled["speedup"]) == (code, None)
    assert compiled["unavailable"]["message"]


def test_a_wrong_kernel_has_no_baselines_speedup(worker: WorkerContext) -> None:
    body = compared(worker, forward("return x"), WHOLE).body("j")
    assert body["verdict"] == "wrong_result"
    assert [each["unavailable"]["code"] for each in body["baselines"]] == ["no_speedup", "no_speedup"]


def test_a_reference_that_is_not_pytorch_is_not_compiled(worker: WorkerContext) -> None:
    source = "def run(x):\n    for _ in range(8): x = x.cos()\n    return x"
    io = {"args": [{"name": "x", "type": "tensor", "tensor_spec": {"shape": [512, 512], "dtype": "float32"}}]}
    multi = kernel(source, "multi_kernel", metadata={"entry_point": "run"}, io=io)
    body = compared(worker, kernel(source, metadata={"function_name": "run"}, io=io), multi).body("j")
    assert body["verdict"] == "passed", body["kernel_exec_result"]["validation_error"]
    assert body["baselines"][1]["unavailable"]["code"] == "not_pytorch"


def test_without_the_field_there_are_none(worker: WorkerContext) -> None:
    assert "baselines" not in compared(worker, RIGHT, WHOLE, baselines=["eager"]).body("j")
