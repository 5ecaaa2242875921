"""Every kernel type is built while another job holds the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from domain.fault import JobCancelled
from domain.job import Stage
from domain.request import Request
from stack.example import FOLDER, Example
from tasks.evaluation.pipeline import run
from tasks.node.device_lease import device_lease
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

EXAMPLES = ["torch-layer-norm", "torch-cuda-scaled-relu", "triton-vector-add", "cuda-saxpy", "multi-kernel-rms-norm"]
INSISTS = "name = torch.cuda.get_device_name(0)\nclass Model(nn.Module):\n    def forward(self, x): return x * 2\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as made:
        yield made


def built_beside_a_holder(worker: WorkerContext, wire: dict[str, Any], *, goes_on: bool) -> Any:
    """The report of a job that reached the line for the device while this test held that, if it is to go on."""
    with ExitStack() as holder:
        holder.enter_context(device_lease(worker.device_id, lambda: False))
        stages: list[Stage] = []

        def progress(stage: Stage) -> None:
            stages.append(stage)
            if stage is Stage.WAIT_FOR_DEVICE:
                holder.close()
                if not goes_on:
                    raise JobCancelled

        try:
            request = Request.from_wire({**wire, "num_trials": 1, "timeout": 120})
            return run(request, worker, JobCallbacks(progress))
        except JobCancelled:
            assert stages == [Stage.BUILD, Stage.WAIT_FOR_DEVICE]
            return None


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "torch-cuda-scaled-relu"])
def test_built_beside_a_holder_of_the_device(name: str, worker: WorkerContext) -> None:
    body = Example.load(FOLDER / name).body
    wire = {"kernel": body.get("kernel") or body["custom_kernel"]}
    assert built_beside_a_holder(worker, wire, goes_on=False) is None, "built, and then cancelled while it waited"


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_left_to_build_under_the_lease(name: str, worker: WorkerContext) -> None:
    body = Example.load(FOLDER / name).body
    report = built_beside_a_holder(worker, {"kernel": body.get("kernel") or body["custom_kernel"]}, goes_on=True)
    assert report.outcome.status == "passed"
    assert report.outcome.build["deferred"] is None


@pytest.mark.gpu
def test_a_source_that_insists_on_a_gpu_says_that_it_was_built_late(worker: WorkerContext) -> None:
    wire = {"kernel": {"source_code": INSISTS, "kernel_type": "torch"}}
    report = built_beside_a_holder(worker, wire, goes_on=True)
    assert report.outcome.status == "passed"
    assert "needs a GPU while it is imported" in report.outcome.build["deferred"]
