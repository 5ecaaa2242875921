"""Builds of whole jobs: what comes out of the cache, and that many jobs with one source build it once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from domain.fault import Unproven
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.request import Request
from domain.result import Outcome, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.sandbox.killed_compilers import compilers_killed
from tests.tasks.example_jobs import RELU

SLOW = f"import time\ntime.sleep(1.0)\n{RELU}"
WRONG = "print('looked at')\nimport torch\nundefined_name\n"
CRASHING = "import os\nos.abort()\n"
OUT_OF_REACH = """
import os
here = os.getcwd()
def longer(name):
    os.makedirs(name, exist_ok=True)
    os.chdir(name)
for _ in range((4090 - len(here)) // 251):
    longer("d" * 250)
open("f" * 250, "w").close()
for _ in range(2):
    longer("d" * 250)
os.chdir(here)
"""
"""What it leaves has names that no path is long enough for."""


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as made:
        yield made


def outcome(worker: WorkerContext, source: str, kernel_type: str = "torch", **more: Any) -> Outcome:
    kernel = {"source_code": source, "kernel_type": kernel_type, **more}
    wire = {"kernel": kernel, "num_trials": 1, "timeout": 60, "target_precision": 0.5}
    return run(Request.from_wire(wire), worker).outcome


def verdict_against(worker: WorkerContext, reference: str, source: str, kernel_type: str) -> Status:
    judged = {"source_code": source, "kernel_type": kernel_type}
    beside = {"source_code": reference, "kernel_type": "torch"}
    wire = {"kernel": judged, "reference": beside, "num_trials": 1, "timeout": 60, "target_precision": 0.5}
    return run(Request.from_wire(wire), worker).outcome.status


def cache_of(found: Outcome) -> str:
    return str(found.build["compile_cache"])


def test_the_second_time_it_is_there(worker: WorkerContext) -> None:
    first, second = outcome(worker, RELU), outcome(worker, RELU)
    assert (first.status, second.status) == (Status.PASSED, Status.PASSED)
    assert (cache_of(first), cache_of(second)) == ("miss", "hit")
    assert second.build["entry"] == first.build["entry"] == "class Model"
    # Nodes share nothing unless they are told to: no Redis is there that could be asked.
    assert worker.shared is None
    assert "built_by" not in first.build and "built_by" not in second.build
    assert cache_of(outcome(worker, RELU + "# another source\n")) == "miss"
    assert cache_of(outcome(worker, RELU, metadata={"class_name": "Model"})) == "miss"


def test_whatever_changes_a_build_is_part_of_its_key(worker: WorkerContext) -> None:
    first = Kernel(RELU, KernelType.TORCH_CUDA, metadata={"compile_options": ["-O2"]})
    others = [
        replace(first, source_code=RELU.replace("8", "9")),
        replace(first, kernel_type=KernelType.TORCH),
        replace(first, metadata={"compile_options": ["-O3"]}),
        replace(first, metadata={}),
    ]
    keys = {worker.build_key(each) for each in (first, *others)}
    assert len(keys) == 1 + len(others) and worker.build_key(replace(first)) in keys
    assert worker.build_key(first, gradients=True) not in keys


def test_sources_that_differ_in_one_number_are_judged_each_by_its_own(worker: WorkerContext) -> None:
    sources = [f"def kernel_fn(x):\n    return x.clamp(min=0) * {factor}\n" for factor in (1.0, 2.0, 1.0)]
    verdicts = [verdict_against(worker, RELU, source, "torch") for source in sources]
    assert verdicts == [Status.PASSED, Status.WRONG_RESULT, Status.PASSED]


def test_a_compile_error_comes_back_whole(worker: WorkerContext) -> None:
    first, second = outcome(worker, WRONG), outcome(worker, WRONG)
    assert first.status is Status.COMPILE_ERROR
    assert (cache_of(first), cache_of(second)) == ("miss", "hit")
    assert (second.message, second.log, second.output) == (first.message, first.log, first.output)
    assert "looked at" in second.output
    assert "undefined_name" in second.log


def test_a_crash_is_not_remembered(worker: WorkerContext) -> None:
    found = [outcome(worker, CRASHING) for _ in range(2)]
    assert [one.status for one in found] == [Status.CRASHED] * 2
    assert [cache_of(one) for one in found] == ["miss", "miss"]


LIES = """
import backends.base
made = backends.base.Artifact.__init__
def lying(self, *given, **named):
    made(self, *given, **named)
    self.facts.update(compile_cache={"hit": 1}, seconds=[], log={}, deferred=5, built_by={})
backends.base.Artifact.__init__ = lying
"""
"""Its builder says what is not a builder's to say."""


def test_where_a_build_came_from_is_not_the_runners_word(worker: WorkerContext) -> None:
    for origin in ("miss", "hit"):
        told = outcome(worker, LIES + RELU).build
        assert (told["compile_cache"], told["log"], told["deferred"]) == (origin, "", None)
        assert told["seconds"] > 0


@pytest.mark.parametrize("wrong", ["", "undefined_name\n"], ids=["right", "wrong"])
def test_a_build_that_nobody_can_read_is_the_submissions_fault(wrong: str, worker: WorkerContext) -> None:
    found = outcome(worker, f"{OUT_OF_REACH}{wrong}{RELU}")
    assert found.status is (Status.COMPILE_ERROR if wrong else Status.UNSUPPORTED)


def test_a_raw_kernel_is_compiled_once(worker: WorkerContext) -> None:
    io = {
        "args": [{"name": "y", "type": "tensor", "role": "output", "tensor_spec": {"shape": [64]}}],
        "launch": {"grid": [1], "block": [64]},
    }
    source = "__global__ void ones(float* y) { y[threadIdx.x] = 1.0f; }"
    first, second = outcome(worker, source, "cuda", io=io), outcome(worker, source, "cuda", io=io)
    assert (cache_of(first), cache_of(second)) == ("miss", "hit")
    assert (second.status, second.message) == (first.status, first.message)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_CACHE_MIB", "0")
    with own_worker() as worker:
        assert [cache_of(outcome(worker, RELU)) for _ in range(2)] == ["off", "off"]


JOBS = """
import json, sys
from domain.fault import Unproven
from domain.request import Request
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
worker, wire = WorkerContext(), json.load(sys.stdin)
found = [run(Request.from_wire(wire), worker).outcome for _ in range(2)]
worker.close()
print(json.dumps([[one.status.value, one.build["compile_cache"]] for one in found]))
"""


def test_many_jobs_with_one_source_build_it_once(worker: WorkerContext) -> None:
    """Two builders of one node, four jobs that overlap."""
    kernel = {"source_code": SLOW, "kernel_type": "torch"}
    wire = json.dumps({"kernel": kernel, "num_trials": 1, "timeout": 60, "target_precision": 0.5})
    builders = [
        subprocess.Popen(
            [sys.executable, "-c", JOBS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for builder in builders:
        assert builder.stdin is not None
        builder.stdin.write(wire)
        builder.stdin.close()
    found = []
    for builder in builders:
        assert builder.stdout is not None
        found += json.loads(builder.stdout.read().splitlines()[-1])
        builder.stdout.close()
        assert builder.wait(60) == 0
    assert Counter(map(tuple, found)) == {("passed", "miss"): 1, ("passed", "hit"): 3}


EXTENSION = """
import torch
from torch.utils.cpp_extension import load_inline
code = "#include <torch/extension.h>\\ntorch::Tensor go(torch::Tensor x) {{ return x + 1; }}"
built = load_inline("{name}", code, functions=["go"])
class Model(torch.nn.Module):
    def forward(self, x):
        return built.go(x)
def get_inputs():
    return [torch.ones(64)]
"""
PLAIN = EXTENSION.replace("built.go(x)", "x + 1").replace("built = ", "# ").format(name="none")


@pytest.mark.parametrize("role", ["kernel", "reference"])
def test_a_compiler_that_is_killed_costs_an_attempt_and_no_verdict(role: str, worker: WorkerContext) -> None:
    source = EXTENSION.format(name=f"killed_{role}")
    kernel, plain = ({"source_code": each, "kernel_type": "torch_cuda"} for each in (source, PLAIN))
    kernel_runs = {"kernel": kernel} if role == "kernel" else {"kernel": plain, "reference": kernel}
    wire = {**kernel_runs, "num_trials": 1, "timeout": 120, "target_precision": 0.5}
    request = Request.from_wire(wire)
    with compilers_killed(os.getpid(), 10_000) as ended, pytest.raises(Unproven):
        run(request, worker)
    assert ended
    report = run(request, worker)
    assert report.outcome.status is Status.PASSED
    side = report.outcome if role == "kernel" else report.reference
    assert side is not None and cache_of(side) == "miss", "what the killed compiler left was kept"


@pytest.mark.slow
def test_an_extension_is_compiled_once_and_loaded_from_its_copy(worker: WorkerContext) -> None:
    source = (ROOT / "benchmarks" / "extensions" / "host_only.py").read_text()
    first, second = (outcome(worker, source, "torch_cuda") for _ in range(2))
    assert (first.status, second.status) == (Status.PASSED, Status.PASSED)
    assert (cache_of(first), cache_of(second)) == ("miss", "hit")
    assert first.build["headers"] == second.build["headers"] == ["main.o: lean"]
    assert second.build["seconds"] < 0.5 * first.build["seconds"]


@pytest.mark.slow
def test_an_extension_of_the_same_name_is_built_of_its_own_source(worker: WorkerContext) -> None:
    """Where builds are found again by the name that a source gives its extension, an earlier one is judged."""
    source = (ROOT / "benchmarks" / "extensions" / "host_only.py").read_text()
    wrong = source.replace("torch::sigmoid(x)", "torch::tanh(x)")
    reference = """
def kernel_fn(x):
    return (torch.relu(x) + torch.sigmoid(x)).pow(2).sum(-1, True).sqrt()
def get_inputs():
    return [torch.randn(64)]
"""
    verdicts = [verdict_against(worker, reference, each, "torch_cuda") for each in (source, wrong, source)]
    assert verdicts == [Status.PASSED, Status.WRONG_RESULT, Status.PASSED]
