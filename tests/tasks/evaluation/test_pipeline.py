"""The pipeline on the CPU: real runners, every kernel type, right and wrong."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from domain.device_metrics import CounterRequest
from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from domain.flags.codes import FlagCode
from domain.job import Stage
from domain.request import Request
from domain.result import Lack, Status
from profiling.gpu.xid_errors import CardError
from tasks.correctness import trials
from tasks.correctness.distribution_check import DistributionCheck
from tasks.evaluation import multi_process
from tasks.evaluation.device_scope import DeviceUse
from tasks.evaluation.pipeline import run
from tasks.evaluation.report import make_report
from tasks.node.device_lease import device_lease
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.null_window_recheck import NullWindowRecheck
from tests.backends.extensions.test_jit_build import PYTHON_MODULE
from tests.flag_codes import codes
from tests.tasks.judging import CHAIN, INPUTS, SOFTMAX, compared, forward, judged, kernel


def tensor(name: str, shape: list[int], role: str = "input", dtype: str = "float32", **init: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"shape": shape, "dtype": dtype}
    if init:
        spec["init"] = init
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": spec}


def test_a_candidate_that_carries_the_reference_along_is_judged_by_its_own_class(worker: WorkerContext) -> None:
    report = judged(worker, kernel(SOFTMAX + forward("return x")["source_code"]), kernel(SOFTMAX))
    assert report.outcome.status is Status.WRONG_RESULT and report.outcome.entry == "class ModelNew"


def test_stages_come_in_order(worker: WorkerContext) -> None:
    stages: list[Stage] = []
    wire = {"kernel": kernel(SOFTMAX), "num_trials": 5, "timeout": 30, "atol": 1e-2, "rtol": 1e-2}
    report = run(Request.from_wire(wire), worker, JobCallbacks(stages.append))
    assert report.outcome.status is Status.PASSED
    assert stages == [Stage.BUILD, Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.VALIDATE, Stage.TIME]


def test_precise_judges_in_several_processes(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_process, "DEVICE_S", math.inf)  # Else a slow host's third pair is its last.
    stages: list[Stage] = []
    tried: list[DistributionCheck] = []
    run_check = DistributionCheck.run
    monkeypatch.setattr(
        DistributionCheck, "run", lambda each, **which: (tried.append(each), run_check(each, **which))[1]
    )
    wire = {
        "kernel": kernel(SOFTMAX),
        "reference": kernel(SOFTMAX),
        "num_trials": 5,
        "timeout": 60,
        "target_precision": 0.5,
    }
    report = run(Request.from_wire(wire | {"budget": "precise"}), worker, JobCallbacks(stages.append))
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    assert stages.count(Stage.LOAD) == len(report.outcome.timing.per_process_ms) == 4
    comparison = report.outcome.comparison
    assert comparison is not None and comparison.calls > 4 * 20  # Each has its own sets before the timing.
    assert len(set(map(id, tried))) == 2


def test_where_nothing_was_built_the_device_is_left_alone(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []
    monkeypatch.setattr(worker, "release_job_memory", lambda: touched.append("rest"))
    monkeypatch.setattr(worker.card_errors, "take_new", lambda seconds: touched.append("errors") or [])
    report = judged(worker, kernel("def broken(:"), device_metrics=CounterRequest().to_wire(), sanitize=True)
    assert report.outcome.status is Status.COMPILE_ERROR and touched == []
    assert report.body("j")["kernel_exec_result"]["sanitizer"]["status"] == "unavailable"


ONLY_ITS_SIZE = forward("y = torch.softmax(x, -1)\n        return torch.where(x.abs() > 8, y + 1, y)")
"""Right on what a standard normal draws, wrong on outliers."""


def test_quick_compares_in_full_and_says_what_it_left_out(worker: WorkerContext) -> None:
    report, told = compared(worker, forward("return torch.softmax(x, -1)"), budget="quick")
    body = report.body("j")
    assert (body["verdict"], told) == ("passed", [True, True])
    assert body["budget"]["name"] == "quick"
    assert body["budget"]["skipped_checks"] == ["other_distributions", "other_weights", "float64_precision"]
    comparison, timing = report.outcome.comparison, report.outcome.timing
    assert comparison is not None and timing is not None
    # Two sets beforehand, the warming round, the rounds that count: every call of each. And one that was held back.
    windows = 1 + timing.windows + len(timing.excluded_windows)
    assert comparison.calls == comparison.calls_passed == 2 + windows * timing.calls_per_window + 1
    assert comparison.precision_check is None
    distributions = report.outcome.inputs["distributions"]
    assert distributions["checked"] == []
    assert {each["code"] for each in distributions["skipped"].values()} == {FlagCode.DISTRIBUTION_SKIPPED}
    report, told = compared(worker, forward("return x"), budget="quick")
    assert (report.outcome.status, told) == (Status.WRONG_RESULT, [False])


def test_other_budgets_look_at_other_distributions_and_take_back_what_they_told(worker: WorkerContext) -> None:
    quick, told = compared(worker, ONLY_ITS_SIZE, budget="quick", strictness="robust")
    assert (quick.outcome.status, told) == (Status.PASSED, [True, True])
    usual, told = compared(worker, ONLY_ITS_SIZE, strictness="robust")
    assert (usual.outcome.status, told) == (Status.WRONG_RESULT, [True, False])
    assert usual.body("j")["budget"] == {"name": "default", "skipped_checks": []}


def test_evaluate_answers_in_the_originals_shape(worker: WorkerContext) -> None:
    body = judged(
        worker, kernel("class Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2")
    ).body("j")
    result = body["kernel_exec_result"]
    assert (body["status"], result["compiled"], result["correctness"]) == ("success", True, True)
    assert result["runtime"] == result["runtime_stats"]["mean"] > 0
    assert result["compilation_error"] is None and result["validation_error"] is None
    assert result["timing"]["method"] == "host_window" and result["timing"]["windows"] >= 3
    assert FlagCode.CPU_TIME_INDICATIVE in (flag["code"] for flag in result["timing"]["flags"])
    assert result["inputs"]["source"] == "inferred" and result["inputs"]["inferred"]


def test_a_right_candidate_passes_with_times_for_both_sides(worker: WorkerContext) -> None:
    # Milliseconds of one thread: a ratio of times that are lost in a busy host's noise is not given.
    reference = kernel(f"class Model(nn.Module):\n    def forward(self, x):\n        {CHAIN.format('y + x')}{INPUTS}")
    report = judged(worker, forward(CHAIN.format("x + y")), reference)
    body = report.body("j")
    assert body["verdict"] == "passed", body["kernel_exec_result"]["validation_error"]
    assert body["ref_runtime"]["mean"] > 0
    speedup = body["speedup"]
    if speedup is None:  # On a host as busy as that no window is clear of zero, which is told.
        assert "told from zero" in body["speedup_unavailable_reason"]
        return
    # On one nearly as busy there may be no upper bound.
    assert speedup["ci_low"] <= speedup["ratio"] and (
        speedup["ci_high"] is None or speedup["ratio"] <= speedup["ci_high"]
    )
    comparison = body["kernel_exec_result"]["comparison"]
    assert comparison["calls"] == comparison["calls_passed"] >= 10
    assert comparison["mismatch_count"] == 0 and comparison["strict"]["passed"]


REMEMBERED = "kept = {}\n"


@pytest.mark.parametrize(
    ("expression", "before", "says"),
    [
        ("return torch.softmax(x, 0)", "", "atol=0.01"),
        ("return torch.softmax(x, -1)[:32]", "", "shape"),
        ("return torch.softmax(x, -1).half()", "", "dtype"),
        ("return torch.softmax(x, -1) * float('nan')", "", "out of tolerance"),
        ("return torch.softmax(x, -1), x", "", "output"),
        ("return kept.setdefault('y', torch.softmax(x, -1))", REMEMBERED, "out of tolerance"),
        ("return kept.setdefault(x.data_ptr(), torch.softmax(x, -1))", REMEMBERED, "out of tolerance"),
        ("y = torch.softmax(x, -1); x.zero_(); return y", "", "changed its inputs"),
        ("return torch.empty_like(x)", "", "out of tolerance"),
        ("y = torch.softmax(x, -1); y[-1, -1] += 1; return y", "", "mismatch"),
    ],
)
def test_a_wrong_candidate_is_wrong_whatever_way_it_is(
    worker: WorkerContext, expression: str, before: str, says: str
) -> None:
    report = judged(worker, forward(expression, before), kernel(SOFTMAX))
    assert report.outcome.status is Status.WRONG_RESULT, report.outcome
    assert report.outcome.timing is None and report.outcome.compiled
    if says != "mismatch":
        assert says in (report.outcome.message or "")
    if says in ("mismatch", "out of tolerance"):
        assert report.outcome.comparison is not None and report.outcome.comparison.mismatch_map is not None
        assert report.outcome.comparison.mismatch_map["mismatch_count"] > 0


def test_patched_comparison_and_clocks_change_nothing(worker: WorkerContext) -> None:
    patches = (
        "import time, builtins\ntorch.allclose = lambda *a, **k: True\ntorch.equal = torch.allclose\n"
        "time.perf_counter_ns = lambda: 0\ntime.perf_counter = lambda: 0.0\nbuiltins.all = lambda *a: True\n"
    )
    wrong = judged(worker, forward("return x", patches), kernel(SOFTMAX))
    assert wrong.outcome.status is Status.WRONG_RESULT
    right = judged(worker, forward("return torch.softmax(x, -1)", patches), kernel(SOFTMAX))
    assert right.outcome.status is Status.PASSED
    assert right.outcome.timing is not None and right.outcome.timing.latency_ms > 0
    assert right.outcome.timing.distribution != "events"


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("class Model(:", Status.COMPILE_ERROR, "SyntaxError"),
        ("import no_such_module", Status.COMPILE_ERROR, "no_such_module"),
        ("x = 1", Status.COMPILE_ERROR, ""),
        ("import ctypes\ndef kernel_fn(x): ctypes.string_at(0)" + INPUTS, Status.CRASHED, "SIGSEGV"),
        ("import os\nos._exit(0)", Status.CRASHED, "code 0"),
        ("def kernel_fn(x): raise ValueError('mine')" + INPUTS, Status.RUNTIME_ERROR, "mine"),
        ("def kernel_fn(x): return torch.ones(1 << 40)" + INPUTS, Status.OUT_OF_MEMORY, "memory"),
        ("def get_inputs(): raise ValueError('inputs')\ndef kernel_fn(x): return x", Status.RUNTIME_ERROR, "inputs"),
        ("def kernel_fn(x): return x.cuda()" + INPUTS, Status.UNSUPPORTED, "no GPU"),
    ],
)
def test_each_failure_has_its_status(worker: WorkerContext, source: str, status: Status, says: str) -> None:
    outcome = judged(worker, kernel(source)).outcome
    assert outcome.status is status, (outcome.message, outcome.log)
    assert says in f"{outcome.message}{outcome.log}"
    assert outcome.timing is None
    assert str(worker.folder) not in f"{outcome.message}{outcome.log}"


@pytest.mark.parametrize("where", ["", "def kernel_fn(x):\n    "])
def test_an_endless_loop_is_a_timeout_when_importing_and_when_running(worker: WorkerContext, where: str) -> None:
    outcome = judged(worker, kernel(f"{where}while True: pass\n{INPUTS}"), timeout=5).outcome
    assert outcome.status is Status.TIMEOUT
    assert "timed out" in (outcome.message or "")


def test_a_reference_that_fails_is_named_with_its_own_error(worker: WorkerContext) -> None:
    body = judged(
        worker, forward("return x"), kernel("class Model(nn.Module):\n    def forward(self, x): boom" + INPUTS)
    ).body("j")
    assert body["verdict"] == "reference_failed"
    assert body["ref_result"]["status"] == "runtime_error" and "boom" in body["ref_result"]["validation_error"]
    assert body["kernel_exec_result"]["compiled"] is True and body["kernel_exec_result"]["correctness"] is False
    assert "boom" in body["kernel_exec_result"]["validation_error"]


@pytest.mark.parametrize(("load_s", "late"), [(4.0, "candidate"), (0.0, "reference")])
def test_who_takes_more_of_the_time_is_late_whoever_is_waited_for(
    worker: WorkerContext, load_s: float, late: str
) -> None:
    slow = SOFTMAX.replace("return torch.softmax", "import time; time.sleep(1.5); return torch.softmax")
    waits = f"import os, time\nif 'CUDA_VISIBLE_DEVICES' not in os.environ: time.sleep({load_s})"
    report = judged(worker, forward("return torch.softmax(x, -1)", waits), kernel(slow), timeout=5)
    assert report.reference is not None
    if late == "reference":
        assert report.outcome.status is Status.REFERENCE_FAILED and report.reference.status is Status.TIMEOUT
    else:
        assert report.outcome.status is Status.TIMEOUT and "none left" in (report.outcome.message or "")
        assert report.reference.status is Status.PASSED


def test_random_weights_agree_and_it_is_said_how(worker: WorkerContext) -> None:
    twin = (
        "class {}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.l = nn.Linear(32, 8)\n    def forward(self, x):\n        return {}\n"
    )
    reference = kernel(twin.format("Model", "self.l(x)") + INPUTS)
    same = judged(worker, kernel(twin.format("ModelNew", "x @ self.l.weight.T + self.l.bias")), reference)
    assert same.outcome.status is Status.PASSED
    assert "copied" in same.outcome.inputs["weights"]
    renamed = judged(worker, kernel(twin.replace("self.l", "self.k").format("ModelNew", "self.k(x)")), reference)
    assert renamed.outcome.status is Status.PASSED
    assert "same seed" in renamed.outcome.inputs["weights"]
    lacking = twin.replace("nn.Linear(32, 8)", "nn.Linear(32, 8, bias=False)").format("ModelNew", "self.l(x)")
    apart = judged(worker, kernel(lacking), reference)
    assert apart.outcome.status is Status.WRONG_RESULT
    assert "its weights are its own" in (apart.outcome.message or "")


@pytest.mark.parametrize("inputs", [INPUTS, ""])
@pytest.mark.parametrize("layer", ["nn.LazyLinear(8)", "nn.Linear(32, 8)"])
def test_weights_that_a_first_call_makes_are_alike(worker: WorkerContext, layer: str, inputs: str) -> None:
    model = (
        "class {}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = nn.Linear(32, 32)\n        self.b = {}\n"
        "    def forward(self, x):\n        return self.b(self.a(x))\n"
    )
    reference = kernel(model.format("Model", "nn.LazyLinear(8)") + inputs)
    report = judged(worker, kernel(model.format("ModelNew", layer)), reference)
    assert report.outcome.status is Status.PASSED, report.outcome.message


BY_ITS_ARGUMENTS = """
class {}(nn.Module):
    def __init__(self, n, dtype, act):
        super().__init__()
        self.l, self.act = nn.Linear(n, n, dtype=dtype), act
    def forward(self, x):
        return self.l(x) if self.act is None else self.act(self.l(x))
def get_inputs():
    return [torch.randn(4, 8).bfloat16()]
"""


def test_a_reference_gives_a_candidate_dtypes_too_and_what_cannot_cross_is_named(worker: WorkerContext) -> None:
    candidate = kernel(BY_ITS_ARGUMENTS.format("ModelNew"))
    reference = BY_ITS_ARGUMENTS.format("Model") + "def get_init_inputs():\n    return [8, torch.bfloat16, {}]\n"
    report = judged(worker, candidate, kernel(reference.format("None")))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    fault = judged(worker, candidate, kernel(reference.format("F.gelu"))).outcome
    assert fault.status is Status.RUNTIME_ERROR
    assert "get_init_inputs()" in str(fault.message) and "gelu): define it here too" in str(fault.message)


@pytest.mark.parametrize(
    ("body", "lacks"), [("x.cuda()", Lack.GPU), ("object()", None), ("__import__('helion_of_tomorrow')", None)]
)
def test_only_what_the_worker_lacks_is_told_as_such(worker: WorkerContext, body: str, lacks: Lack | None) -> None:
    source = f"def kernel_fn(x): return {body}\ndef get_inputs(): return [torch.ones(4)]"
    outcome = judged(worker, kernel(source)).outcome
    assert outcome.status is not Status.PASSED and outcome.worker_lacks is lacks


IN_ORDER = """
class {}(nn.Module):
    def __init__(self, {}):
        super().__init__()
        self.scale, self.shift = scale, shift
    def forward(self, {}):
        return x * self.scale + y * self.shift
def get_inputs():
    return [torch.randn(8), torch.randn(8)]
def get_init_inputs():
    return {}
"""


def test_arguments_reach_the_parameters_of_their_names_or_the_result_says_what_they_were(worker: WorkerContext) -> None:
    reference = kernel(IN_ORDER.format("Model", "scale, shift", "x, y", "[2.0, 3.0]"))
    named = kernel(IN_ORDER.format("ModelNew", "shift, scale", "*, y, x", "[3.0, 2.0]"))
    assert judged(worker, named, reference).outcome.status is Status.PASSED
    others = IN_ORDER.format("ModelNew", "b, a", "x, y", "[3.0, 2.0]").replace("= scale, shift", "= a, b")
    outcome = judged(worker, kernel(others), reference).outcome
    assert outcome.status is Status.WRONG_RESULT
    assert "its constructor got the reference's arguments (2.0, 3.0), and not those" in str(outcome.message)


TRITON_ADD = """
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n{bug}
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
"""
TRITON_IO = {
    "args": [
        tensor("x", [1000], kind="randn", seed=1),
        tensor("y", [1000], kind="randn", seed=2),
        tensor("out", [1000], "output"),
        {"name": "n", "type": "int", "value": 1000},
        {"name": "BLOCK", "type": "int", "value": 256, "is_meta": True},
    ],
    "launch": {"grid": "cdiv(n, BLOCK)"},
}
ADD = kernel(
    "class Model(nn.Module):\n    def forward(self, x, y):\n        return x + y", io={"args": TRITON_IO["args"][:2]}
)


@pytest.mark.parametrize(
    ("bug", "status", "says"),
    [
        ("", Status.PASSED, ""),
        (" - 1", Status.WRONG_RESULT, "1 of the 1000 elements of 'out' were never written"),
        (" + 1", Status.WRONG_RESULT, "wrote outside its outputs"),  # What it wrote there it had read past its inputs.
    ],
)
def test_a_triton_kernel_against_a_torch_reference(worker: WorkerContext, bug: str, status: Status, says: str) -> None:
    report = judged(worker, kernel(TRITON_ADD.format(bug=bug), "triton", io=TRITON_IO), ADD)
    assert report.outcome.status is status, report.outcome
    assert says in (report.outcome.message or "")
    assert report.outcome.entry == "kernel add"


def test_an_element_that_is_rightly_nan_has_to_be_written_too(worker: WorkerContext) -> None:
    source = (
        "import triton, triton.language as tl\n@triton.jit\ndef log(x, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    v = tl.load(x + at, mask=at < n)\n"
        "    tl.store(out + at, tl.log(v), mask={})\n"
    )
    size = {"name": "n", "type": "int", "value": 500}
    block = {"name": "BLOCK", "type": "int", "value": 256, "is_meta": True}
    x = tensor("x", [500], kind="randn")
    io = {"args": [x, tensor("out", [500], "output"), size, block], "launch": {"grid": "cdiv(n, BLOCK)"}}
    reference = kernel("class Model(nn.Module):\n    def forward(self, x): return torch.log(x)", io={"args": [x]})
    whole, part = (judged(worker, kernel(source.format(m), "triton", io=io), reference) for m in ("at < n", "v > 0"))
    assert whole.outcome.status is Status.PASSED, whole.outcome.message
    assert part.outcome.status is Status.WRONG_RESULT and "never written" in (part.outcome.message or "")


def test_a_triton_kernel_alone(worker: WorkerContext) -> None:
    outcome = judged(worker, kernel(TRITON_ADD.format(bug=""), "triton", io=TRITON_IO)).outcome
    assert outcome.status is Status.PASSED and outcome.inputs["source"] == "io contract"
    assert outcome.timing is not None
    assert codes(outcome.timing.flags).count(FlagCode.INTERPRETED) == (not worker.target.is_cuda)


def test_contracts_that_disagree_are_refused_by_name(worker: WorkerContext) -> None:
    other = {**TRITON_IO, "args": [tensor("x", [999]), *TRITON_IO["args"][1:]]}
    outcome = judged(worker, kernel(TRITON_ADD.format(bug=""), "triton", io=other), ADD).outcome
    assert outcome.status is Status.CONTRACT_MISMATCH
    assert "'x'" in (outcome.message or "") and "999" in (outcome.message or "")


def test_cuda_is_compiled_but_not_run_where_there_is_no_device(worker: WorkerContext) -> None:
    source = "__global__ void twice(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2; }"
    io = {"args": [tensor("x", [256], "inout"), {"name": "n", "type": "int", "value": 256}]}
    outcome = judged(worker, kernel(source, "cuda", io=io)).outcome
    assert (outcome.status, outcome.compiled) == (Status.UNSUPPORTED, True)
    assert "no GPU" in (outcome.message or "")
    broken = judged(worker, kernel(source.replace("int n)", "int m)"), "cuda", io=io)).outcome
    assert (broken.status, broken.compiled) == (Status.COMPILE_ERROR, False)
    assert 'identifier "n" is undefined' in broken.log


def test_a_whole_cuda_file_is_compiled_but_not_run_where_there_is_no_device(worker: WorkerContext) -> None:
    source = "__global__ void two(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2.f; }\n" + (
        'extern "C" void solve(float* x, int n) { two<<<1, 256>>>(x, n); }'
    )
    io = {"args": [tensor("x", [256], "inout"), {"name": "n", "type": "int", "value": 256}]}
    outcome = judged(worker, kernel(source, "cuda", io=io, metadata={"entry_point": "solve"})).outcome
    assert (outcome.status, outcome.compiled) == (Status.UNSUPPORTED, True), outcome
    assert "compiled but not run" in (outcome.message or "")
    mismatched = judged(worker, kernel(source, "cuda", io={"args": io["args"][:1]}, metadata={"entry_point": "solve"}))
    assert mismatched.outcome.status is Status.CONTRACT_MISMATCH
    assert "solve(float*, int) takes 2 arguments" in (mismatched.outcome.message or "")


def test_an_argument_may_be_none(worker: WorkerContext) -> None:
    io = {"args": [tensor("x", [16], kind="randn"), {"name": "bias", "type": "none"}]}
    source = "def kernel_fn(x, bias):\n    return x * 2 if bias is None else x + bias"
    right = kernel("def kernel_fn(x, bias=None):\n    return x + x", io=io)
    assert judged(worker, kernel(source, io=io), right).outcome.status is Status.PASSED
    assert judged(worker, kernel(source.replace("is None", "is 0"), io=io)).outcome.status is Status.RUNTIME_ERROR


def test_a_multi_kernel_script(worker: WorkerContext) -> None:
    source = TRITON_ADD.format(bug="") + (
        "\ndef main(x, y):\n    out = torch.empty_like(x)\n"
        "    add[(4,)](x, y, out, x.numel(), BLOCK=256)\n    return out * 1.0\n"
    )
    io = {"args": TRITON_IO["args"][:2]}
    outcome = judged(worker, kernel(source, "multi_kernel", io=io, metadata={"entry_point": "main"}), ADD).outcome
    assert outcome.status is Status.PASSED, outcome
    missing = judged(worker, kernel(source, "multi_kernel", io=io, metadata={"entry_point": "nope"})).outcome
    assert missing.status is Status.COMPILE_ERROR and "Entry point 'nope' not found" in (missing.message or "")


def test_scalars_cross_and_fixed_inputs_are_said_to_be_fixed(worker: WorkerContext) -> None:
    io = {"args": [tensor("x", [16], kind="ones"), {"name": "scale", "type": "float", "value": 2.5}]}
    source = "def f(x, scale):\n    assert type(scale) is float\n    return x * scale"
    outcome = judged(worker, kernel(source, io=io, metadata={"function_name": "f"})).outcome
    assert outcome.status is Status.PASSED and outcome.inputs["inputs_not_random"] is True


def test_a_cancelled_job_stops_and_leaves_no_runner(worker: WorkerContext) -> None:
    cancelled = threading.Event()
    wire = {
        "kernel": kernel("def kernel_fn(x):\n    while True: pass" + INPUTS),
        "num_trials": 1,
        "timeout": 60,
        "atol": 0,
        "rtol": 0,
    }
    timer = threading.Timer(1.0, cancelled.set)
    timer.start()
    with pytest.raises(JobCancelled):
        run(Request.from_wire(wire), worker, JobCallbacks(cancelled=cancelled.is_set))
    timer.join()
    assert judged(worker, kernel(SOFTMAX)).outcome.status is Status.PASSED


def test_what_a_kernel_prints_is_in_the_answer(worker: WorkerContext) -> None:
    outcome = judged(worker, kernel("def kernel_fn(x):\n    print('here I am')\n    return x" + INPUTS)).outcome
    assert "here I am" in outcome.output


def test_device_metrics_are_said_to_be_unavailable_where_they_are_asked_for(worker: WorkerContext) -> None:
    asked = judged(worker, kernel(SOFTMAX), device_metrics=CounterRequest().to_wire())
    metadata = asked.body("j")["kernel_exec_result"]["metadata"]
    assert metadata["device_metrics"]["status"] == "unavailable" and metadata["device_metrics"]["reason"]
    metadata = judged(worker, kernel(SOFTMAX)).body("j")["kernel_exec_result"]["metadata"]
    assert "device_metrics" not in metadata


def test_a_null_runner_that_dies_is_our_fault_and_the_next_job_has_another(worker: WorkerContext) -> None:
    assert judged(worker, kernel(SOFTMAX)).outcome.status is Status.PASSED
    assert worker._null is not None
    os.kill(worker._null.session.runner.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureFault, match="null runner"):
        judged(worker, kernel(SOFTMAX))
    assert judged(worker, kernel(SOFTMAX)).outcome.status is Status.PASSED


@pytest.mark.parametrize("strides", [[1, 64], [96, 3], [0, 1], [1, 0], [0, 0]])
def test_inputs_of_any_layout_reach_the_kernel_as_the_contract_has_them(
    worker: WorkerContext, strides: list[int]
) -> None:
    spec = {"shape": [64, 32], "dtype": "float32", "strides": strides}
    io = {"args": [{"name": "x", "type": "tensor", "tensor_spec": spec}]}
    source = f"def kernel_fn(x):\n    assert x.stride() == {tuple(strides)}\n    return x * 2"
    assert judged(worker, kernel(source, io=io), kernel(source, io=io)).outcome.status is Status.PASSED


def test_a_contract_that_this_process_cannot_hold_is_refused_before_it_is_drawn(worker: WorkerContext) -> None:
    elements = worker.one_call_memory // 4 // 2
    io = {"args": [tensor("x", [elements // 2 + 1]), tensor("y", [elements // 2 + 1])]}
    outcome = judged(worker, kernel("def kernel_fn(x, y): return x[:8] + y[:8]", io=io)).outcome
    assert outcome.status is Status.OUT_OF_MEMORY
    assert "this worker allows" in (outcome.message or "")


def test_an_answer_that_this_process_cannot_hold_is_refused(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "one_call_memory", 1 << 20)
    outcome = judged(worker, kernel("def kernel_fn(x): return torch.ones(1 << 19)" + INPUTS)).outcome
    assert outcome.status is Status.OUT_OF_MEMORY


def test_a_reference_without_a_contract_gets_the_candidates_tensors(worker: WorkerContext) -> None:
    source = """
import triton, triton.language as tl
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
"""
    scalars = [{"name": name, "type": "int", "value": value} for name, value in (("n", 1000), ("BLOCK", 256))]
    args = [tensor("x", [1000]), tensor("y", [1000]), tensor("out", [1000], "output"), *scalars]
    candidate = kernel(source, "triton", io={"args": args, "launch": {"grid": 4}})
    report = judged(worker, candidate, kernel("def kernel_fn(x, y): return x + y"))
    assert report.outcome.status is Status.PASSED
    assert report.outcome.inputs["source"] == "the candidate's io contract"
    assert judged(worker, candidate, kernel("def kernel_fn(x, y): return x - y")).outcome.status is Status.WRONG_RESULT


def test_dropout_drops_the_same_in_both_kernels(worker: WorkerContext) -> None:
    reference = "import torch\nfrom torch import nn\nclass Model(nn.Module):\n    def forward(self, x):\n        {}\n"
    dropout = kernel(reference.format("return nn.functional.dropout(x, 0.5)") + INPUTS)
    same = forward("return nn.functional.dropout(x + 0.0, 0.5)", before="import torch\nfrom torch import nn")
    assert judged(worker, same, dropout).outcome.status is Status.PASSED


def test_a_reference_that_answers_at_random_is_named_where_outputs_differ(worker: WorkerContext) -> None:
    drawing = kernel(SOFTMAX.replace("torch.softmax(x, -1)", "x + torch.rand_like(x)"))
    outcome = judged(worker, kernel("import torch\ndef kernel_fn(x): return x + 0.5"), drawing).outcome
    assert outcome.status is Status.WRONG_RESULT
    assert "the reference itself answers the same inputs differently" in str(outcome.message)
    outcome = judged(worker, kernel("def kernel_fn(x): return x * 3"), kernel(SOFTMAX)).outcome
    assert outcome.status is Status.WRONG_RESULT and "reference itself" not in str(outcome.message)


def test_a_reference_without_an_answer_is_the_references_fault(worker: WorkerContext) -> None:
    nothing = kernel(SOFTMAX.replace("return torch.softmax(x, -1)", "return None"))
    outcome = judged(worker, kernel("def kernel_fn(x): return x * 3"), nothing).outcome
    assert outcome.status is Status.REFERENCE_FAILED and "answered with no tensor" in str(outcome.message)


def test_a_kernel_that_answers_in_one_buffer_is_right_and_its_method_says_so(worker: WorkerContext) -> None:
    source = "import torch\nout = torch.empty(64, 32)\ndef kernel_fn(x): return torch.softmax(x, -1, out=out)"
    outcome = judged(worker, kernel(source), kernel(SOFTMAX)).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert outcome.timing is not None and "same memory" in outcome.timing.method


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def kernel_fn(x): return 1.0\ndef get_inputs(): return [object()]", "type object does not cross"),
        ("def kernel_fn(x): return x[0]\ndef get_inputs():\n    a = []; a.append(a); return [a]", "contain itself"),
        ("def kernel_fn(x):\n    a = [x]; a.append(a); return a" + INPUTS, "contain itself"),
        ("def kernel_fn(x): return 10**30" + INPUTS, "fit in 64 bits"),
        ("def kernel_fn(x): return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)" + INPUTS, "torch.qint8"),
    ],
)
def test_what_cannot_cross_is_unsupported_and_shows_nothing_of_the_service(
    worker: WorkerContext, source: str, says: str
) -> None:
    outcome = judged(worker, kernel(source)).outcome
    assert outcome.status is Status.UNSUPPORTED and says in (outcome.message or "")
    assert "sandbox/" not in outcome.log and "domain/" not in outcome.log


def test_a_reference_that_ends_in_float64_takes_nothing_from_the_verdict(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "PRECISION_S", 0.5)
    slow = "if x.dtype == torch.float64: import time; time.sleep(60)\n        return torch.softmax(x, -1)"
    reference = kernel(f"class Model(nn.Module):\n    def forward(self, x):\n        {slow}{INPUTS}")
    report = judged(worker, forward("return torch.softmax(x, -1)"), reference)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None
    assert report.outcome.inputs["distributions"]["checked"] and report.outcome.comparison is not None
    assert report.outcome.comparison.precision_check is None


def test_inputs_too_large_to_be_copied_a_dozen_times_are_not_tried_otherwise(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "window_memory", 60_000)
    report = judged(worker, forward("return torch.softmax(x, -1)"), kernel(SOFTMAX))
    assert report.outcome.status is Status.PASSED
    distributions = report.outcome.inputs["distributions"]
    assert distributions["checked"] == []
    assert distributions["skipped"]["small"]["code"] == FlagCode.DISTRIBUTION_INPUTS_TOO_LARGE


def test_numbers_are_no_memory_that_comes_again(worker: WorkerContext) -> None:
    reference = kernel(f"class Model(nn.Module):\n    def forward(self, x):\n        return float(x.sum()){INPUTS}")
    report = judged(worker, forward("return float(x.sum())"), reference)
    assert report.outcome.status is Status.PASSED
    assert report.outcome.timing is not None and report.outcome.timing.method == "host_window"


BUILDS_IN_A_CALL = """
from torch.utils.cpp_extension import load_inline

class ModelNew(nn.Module):
    built = None

    def forward(self, x):
        if self.built is None:
            self.built = load_inline(
                name="in_a_call", no_implicit_headers=True, is_python_module=False, cpp_sources="int f() { return 1; }"
            )
        return torch.softmax(x, -1)
"""


def test_what_is_compiled_with_the_device_in_hand_is_told(worker: WorkerContext) -> None:
    """On a CPU no dry run precedes the call."""
    outcome = judged(worker, kernel(BUILDS_IN_A_CALL, "torch_cuda"), kernel(SOFTMAX)).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert outcome.build["deferred"] is None
    told = outcome.build["compiled_at_run_time"]
    assert told.startswith("compiled with the device held, as in every job: in_a_call")
    assert outcome.timing is not None
    assert FlagCode.EXTENSION_NOT_BUILT not in [flag.code for flag in outcome.timing.flags]


CHANGING_NAMES = f'''
import time, uuid
from torch.utils.cpp_extension import load_inline

SOURCE = """{PYTHON_MODULE}
PyObject* function(PyObject*, PyObject* x) {{ return PyNumber_Add(x, PyLong_FromLong(ADDED)); }}
"""
one = load_inline(f"added_{{time.time_ns()}}", SOURCE.replace("ADDED", "1"), no_implicit_headers=True)
ten = load_inline(f"added_{{uuid.uuid4().hex}}", SOURCE.replace("ADDED", "10"), no_implicit_headers=True)

class ModelNew(nn.Module):
    def forward(self, x): return ten.function(one.function(x))
'''


def test_extensions_with_changing_names_are_loaded_as_built(worker: WorkerContext) -> None:
    reference = kernel(f"class Model(nn.Module):\n    def forward(self, x):\n        return x + 11{INPUTS}")
    outcome = judged(worker, kernel(CHANGING_NAMES, "torch_cuda"), reference).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert len(outcome.build["extensions"]) == 2 and "compiled_at_run_time" not in outcome.build


GOES_ON_WITHOUT = """
from torch.utils.cpp_extension import load_inline

def built(name, text):
    return load_inline(name=name, no_implicit_headers=True, is_python_module=False, cpp_sources=text)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for name, text in ("never", "int f( {"), ("at_last", "int g( {"), ("at_last", "int h();"):
            try:
                self.extension = built(name, text)
            except RuntimeError as error:
                self.why = error

    def forward(self, x):
        return torch.softmax(x, -1)
"""


def test_an_extension_whose_failed_build_a_source_catches_is_flagged(worker: WorkerContext) -> None:
    outcome = judged(worker, kernel(GOES_ON_WITHOUT, "torch_cuda"), kernel(SOFTMAX)).outcome
    assert outcome.status is Status.PASSED and outcome.timing is not None, outcome.message
    (flag,) = (flag for flag in outcome.timing.flags if flag.code is FlagCode.EXTENSION_NOT_BUILT)
    assert flag.message == "the build of never failed, and the source went on without it"


KEEPS_A_KERNEL = """
import cupy.cuda.compiler

def kept():
    cache = getattr(cupy.cuda.compiler, "_kernel_cache_backend", None)  # Of CuPy from 14.1 on.
    if cache is not None:
        cache.save("a-kernel", b"its code", "its source")
        return cache.load("a-kernel") == b"its code"
    return True

class ModelNew(nn.Module):
    def forward(self, x):
        assert kept()
        return torch.softmax(x, -1)
"""


def test_cupy_keeps_its_kernels_in_the_jobs_own_folder(worker: WorkerContext) -> None:
    outcome = judged(worker, kernel(KEEPS_A_KERNEL), kernel(SOFTMAX)).outcome
    assert outcome.status is Status.PASSED, outcome.message


DOUBLE = "\ndef get_inputs():\n    return [torch.randn(64, 32, dtype=torch.float64)]\n"


def test_inputs_in_float64_are_tried_in_other_distributions_too(worker: WorkerContext) -> None:
    reference = kernel(
        "class Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)" + DOUBLE
    )
    report = judged(worker, forward("return torch.softmax(x, -1)"), reference)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert "small" in report.outcome.inputs["distributions"]["checked"]


def test_parameters_in_float8_get_other_values_too(worker: WorkerContext) -> None:
    module = (
        "class {}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        ones = torch.ones(32).to(torch.float8_e4m3fn)\n"
        "        self.scale = nn.Parameter(ones, requires_grad=False)\n"
        "    def forward(self, x):\n        return x * self.scale.to(x.dtype)\n"
    )
    report = judged(worker, kernel(module.format("ModelNew")), kernel(module.format("Model") + INPUTS))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert [finding["code"] for finding in report.outcome.inputs["weight_findings"]] == [FlagCode.WEIGHTS_AGREE]


def test_building_has_a_time_of_its_own(worker: WorkerContext) -> None:
    slow = kernel("import time\ntime.sleep(60)\n" + SOFTMAX)
    outcome = judged(worker, slow, timeout=60, build_timeout=1).outcome
    assert (outcome.status, outcome.compiled) == (Status.TIMEOUT, False)
    assert "`build_timeout`" in (outcome.message or "")
    slow_to_run = kernel("def kernel_fn(x):\n    while True: pass" + INPUTS)
    outcome = judged(worker, slow_to_run, timeout=1, build_timeout=60).outcome
    assert (outcome.status, outcome.compiled) == (Status.TIMEOUT, True)
    assert "`timeout`" in (outcome.message or "")


class Reports:
    """What a driver would report, for a machine without one: nothing before the job, these after it."""

    def __init__(self, *xids: int) -> None:
        self.xids = xids

    def discard_pending(self) -> None: ...

    def take_new(self, within_s: float = 0.0) -> list[CardError]:
        return [CardError(xid) for xid in self.xids]


def test_an_error_of_the_card_is_no_fault_of_a_kernel(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    raises = kernel("def kernel_fn(x):\n    raise RuntimeError('illegal address')" + INPUTS)
    monkeypatch.setattr(worker, "card_errors", Reports(31))
    assert judged(worker, raises).outcome.status is Status.RUNTIME_ERROR
    monkeypatch.setattr(worker, "card_errors", Reports(31, 79))
    with pytest.raises(InfrastructureFault, match="Xid 79: the GPU has fallen off the bus"):
        judged(worker, raises)


def test_what_the_driver_reported_is_told(
    worker: WorkerContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.device, "is_cuda", True)
    request = Request.from_wire({"kernel": kernel(SOFTMAX), "num_trials": 1, "timeout": 9})
    candidate = KernelRun("candidate", request.kernel, tmp_path / "candidate")
    candidate.fault = KernelFault(Status.RUNTIME_ERROR, "an illegal address")
    use = DeviceUse(card_errors=[CardError(31)])
    device = make_report(JobContext.of(request, worker), [candidate], use, None).device
    assert [error["xid"] for error in device.gpu_errors or ()] == [31]
    assert device.multi_queue_roles == [], "it has no context"


@pytest.mark.parametrize("others_have_it_quiet", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_kernel_whose_null_windows_are_known_ends_when_the_device_is_given_back(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, known: bool, others_have_it_quiet: bool
) -> None:
    monkeypatch.setattr(type(worker.device), "has_room", True)
    monkeypatch.setattr(worker, "block_context_creation", lambda cancelled: device_lease("test-quiet", cancelled))
    monkeypatch.setattr(NullWindowRecheck, "can_skip", lambda *_: known)
    real_rest, alive, shot = worker.release_job_memory, [], []
    with contextlib.ExitStack() as held:

        def rest() -> None:
            real_rest()
            if others_have_it_quiet:
                held.enter_context(device_lease("test-quiet", lambda: False))

        def closing(self: KernelRun) -> None:
            try:
                with device_lease(worker.device_id, lambda: True):
                    alive.append(self.session is not None and self.timing is not None)
            except JobCancelled:
                pass
            close(self)

        close, shoot = KernelRun.close, NullWindowRecheck.measure
        monkeypatch.setattr(worker, "release_job_memory", rest)
        monkeypatch.setattr(KernelRun, "close", closing)
        monkeypatch.setattr(NullWindowRecheck, "measure", lambda self: (shot.append(True), shoot(self)))
        report = judged(worker, kernel("print('to the end')\n" + SOFTMAX))
        worker.refill_pool()
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    assert report.outcome.output == "to the end\n"
    assert shot == ([] if known else [True])
    assert report.outcome.timing.baseline_from_cache is known
    assert any(alive) is known, "else it was closed while the device was held"


QUANTIZED = """
import torch
import torch.nn as nn
class CLASS(nn.Module):
    def forward(self, x, scales):
        blocks = x.view(torch.uint8)
        halves = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)
        sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        values = sizes[(halves & 7).long()] * (1 - (halves >> 3).float() * 2)
        values = values.view(8, 2, 32) * scales.to(torch.float32)[..., None]
        CHANGE
        return values.flatten(1), scales.view(torch.uint8).add(1).view(torch.float8_e8m0fnu), (
            blocks.flip(-1).view(torch.float4_e2m1fn_x2))
"""
QUANTIZED_IO = {
    "args": [
        tensor("x", [8, 32], dtype="float4_e2m1fn_x2"),
        tensor("scales", [8, 2], dtype="float8_e8m0fnu", kind="uniform", low=0.5, high=4),
    ]
}


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ("blocks = blocks ^ (((blocks & 7) == 0) * 8).to(torch.uint8)  # Another zero.", Status.PASSED, ""),
        (
            "blocks = blocks ^ ((blocks == 0x51) * 8).to(torch.uint8)",
            Status.WRONG_RESULT,
            "expected [0.5, 3.0], got [-0.5, 3.0]. Each byte of float4_e2m1fn_x2 holds two numbers",
        ),
        (
            "scales = (scales.view(torch.uint8) | 1).view(torch.float8_e8m0fnu)",
            Status.WRONG_RESULT,
            "Each byte of float8_e8m0fnu is a scale",
        ),
    ],
)
def test_packed_numbers_and_scales_are_compared_exactly(
    worker: WorkerContext, change: str, status: Status, says: str
) -> None:
    reference, candidate = (
        kernel(QUANTIZED.replace("CLASS", name).replace("CHANGE", change), io=QUANTIZED_IO)
        for name, change in (("Model", ""), ("ModelNew", change))
    )
    report = judged(worker, candidate, reference, rtol=0.1)
    assert report.outcome.status is status, report.outcome.message
    assert says in (report.outcome.message or "")
    if "is a scale" in says:
        assert report.outcome.comparison is not None
        first = report.outcome.comparison.first_mismatch or {}
        assert first["actual"] == 2 * first["expected"] or first["expected"] == 2 * first["actual"]


SCALES = """
import torch
import torch.nn as nn
class CLASS(nn.Module):
    def forward(self, scales):
        return VALUE.view(torch.DTYPE)
"""
SCALES_IO = {"args": [QUANTIZED_IO["args"][1]]}


def scales(name: str, dtype: str, value: str = "scales.view(torch.uint8).add(1)") -> dict[str, Any]:
    return kernel(SCALES.replace("CLASS", name).replace("DTYPE", dtype).replace("VALUE", value), io=SCALES_IO)


@pytest.mark.parametrize("dtypes", [("float8_e8m0fnu", "uint8"), ("uint8", "float8_e8m0fnu")])
def test_the_bytes_of_scales_are_no_scales(worker: WorkerContext, dtypes: tuple[str, str]) -> None:
    report = judged(worker, scales("ModelNew", dtypes[1]), scales("Model", dtypes[0]))
    assert report.outcome.status is Status.WRONG_RESULT
    expected, got = (f"torch.{dtype}" for dtype in dtypes)
    assert f"Output 0 has the wrong dtype: expected dtype {expected}, got {got}" in (report.outcome.message or "")


@pytest.mark.parametrize("dtype", ["float8_e8m0fnu", "float4_e2m1fn_x2"])
@pytest.mark.parametrize("value", ["scales", "scales.t()"])
def test_a_view_of_quantized_inputs_is_right(worker: WorkerContext, dtype: str, value: str) -> None:
    io = {"args": [tensor("scales", [8, 32], dtype=dtype)]}
    candidate, reference = (
        scales(name, dtype, value) | {"io": io}
        for name, value in (("ModelNew", value), ("Model", f"{value}.contiguous()"))
    )
    report = judged(worker, candidate, reference)
    assert report.outcome.status is Status.PASSED, report.outcome.message


def test_fixed_scales_are_told(worker: WorkerContext) -> None:
    made = "torch.full((8, 2), 127, dtype=torch.uint8)"
    report = judged(worker, *(scales(name, "float8_e8m0fnu", made) for name in ("ModelNew", "Model")))
    assert report.outcome.comparison is not None and report.outcome.status is Status.PASSED
    assert FlagCode.FIXED_OUTPUTS_PASS in {flag.code for flag in report.outcome.comparison.weak_reference}


RAGGED = """
import torch
import torch.nn as nn
class CLASS(nn.Module):
    def forward(self, offsets, columns, values):
        rows = torch.arange(len(offsets) - 1).repeat_interleave(offsets.diff().long())
        out = torch.zeros(len(offsets) - 1, 64)
        out.index_put_((rows, columns.long()), values ACCUMULATE)
        return out, torch.segment_reduce(values, "sum", offsets=offsets.long(), initial=0)
"""
RAGGED_IO = {
    "args": [
        tensor("offsets", [33], dtype="int32", kind="offsets", high=40, total=400),
        tensor("columns", [400], dtype="int32", kind="columns", of="offsets", high=64),
        tensor("values", [400]),
    ]
}


def test_index_sets_keep_their_rule_in_every_set_that_is_judged(worker: WorkerContext) -> None:
    """Columns of a row differ, so writing and adding are the same: a set without the rule would tell them apart."""
    reference, candidate = (
        kernel(RAGGED.replace("CLASS", name).replace(" ACCUMULATE", how), io=RAGGED_IO)
        for name, how in (("Model", ""), ("ModelNew", ", accumulate=True"))
    )
    report = judged(worker, candidate, reference)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    inputs = report.body("j")["kernel_exec_result"]["inputs"]
    assert not inputs["inputs_not_random"] and inputs["fresh_sets"] > 5


def test_a_source_may_start_python_processes_of_its_own(worker: WorkerContext) -> None:
    source = (
        "from multiprocessing import get_context\n"
        "def kernel_fn(x):\n    return x\n"
        "def get_inputs():\n    return [torch.ones(3)]\n"
        "with get_context('spawn').Pool(1) as pool:\n    assert pool.apply(abs, (-3,)) == 3\n"
    )
    report = judged(worker, kernel(source))
    assert report.outcome.status is Status.PASSED, report.outcome.message
