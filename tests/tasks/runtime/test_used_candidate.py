"""A candidate without host code has the process of an earlier one, and no verdict but `passed` comes out of it.

Only `cuda` has no host code, and it needs a GPU. Here Python takes its place: it can leave more behind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from domain.job import Stage
from domain.kernel import Kernel
from domain.request import Request
from domain.result import Report, Status
from profiling.gpu.timing_device import Device
from tasks.evaluation.pipeline import run
from tasks.node.idle_processes import IdleProcesses
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.kept_runner import GROWTH_BYTES, KeptRunner
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.judging import SOFTMAX, forward, kernel, killing, opened, wait_for_end

FRESH, USED = {"process": "fresh"}, {"process": "used"}
RIGHT, WRONG = "torch.softmax(x, -1)", "torch.softmax(x, 0)"
HIDE = "import linecache\nlinecache.cache['hidden'] = 1"
"""Hides a value where the comparison of the process's state does not look."""
HIDDEN = "__import__('linecache').cache.get('hidden')"


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXT_REUSES", "3")
        patch.setattr(Kernel, "has_host_code", False)
        yield from opened()


def request(result: str = RIGHT, before: str = "", owner: str | None = None, **more: Any) -> Request:
    wire = {"kernel": forward(f"return {result}", before), "reference": kernel(SOFTMAX), "num_trials": 4, "timeout": 60}
    return replace(Request.from_wire(wire | {"budget": "quick", "target_precision": 0.5} | more), owner=owner)


def judged(worker: WorkerContext, *arguments: str, **more: Any) -> Report:
    return run(request(*arguments, **more), worker)


def seen(report: Report) -> tuple[Status, dict[str, str] | None]:
    return report.outcome.status, report.device.isolation


def again(verdict: str) -> dict[str, str]:
    return FRESH | {"used_process_verdict": verdict}


def test_a_process_serves_so_many_candidates_and_then_ends(worker: WorkerContext) -> None:
    pids = []
    for number in range(6):
        report = judged(worker, f"{RIGHT} + {number} - {number}", owner="count")
        assert seen(report) == (Status.PASSED, USED if number % 4 else FRESH)
        assert report.body("j")["environment"]["isolation"] == report.device.isolation
        warm = worker.used_candidate.warm
        pids.append(warm.runner.session.runner.pid if warm is not None else None)
    assert len(set(pids[:3])) == 1 and pids[3] is None and pids[4] == pids[5] != pids[0]


def test_a_kernel_without_a_reference_has_a_used_process_too(worker: WorkerContext) -> None:
    alone = replace(request(owner="alone"), reference=None, kernel=Kernel.from_wire(kernel(SOFTMAX)))
    assert [seen(run(alone, worker)) for _ in range(2)] == [(Status.PASSED, FRESH), (Status.PASSED, USED)]


def test_a_wrong_result_is_judged_again_before_it_is_told(worker: WorkerContext) -> None:
    judged(worker, owner="wrong")
    told: list[bool] = []
    stages: list[Stage] = []
    report = run(request(WRONG, owner="wrong"), worker, JobCallbacks(stages.append, on_interim_result=told.append))
    assert seen(report) == (Status.WRONG_RESULT, again("wrong_result"))
    assert told == [False] and stages.count(Stage.VALIDATE) == 2
    assert worker.used_candidate.warm is None


def test_a_wrong_result_in_a_fresh_process_is_told_at_once(worker: WorkerContext) -> None:
    assert seen(judged(worker, WRONG, owner="at once")) == (Status.WRONG_RESULT, FRESH)
    assert worker.used_candidate.warm is None


HURT = {
    "runtime_error": f"1 / 0 if {HIDDEN} else {RIGHT}",
    "wrong_result": f"x if {HIDDEN} else {RIGHT}",
    "crashed": f"__import__('os').kill(__import__('os').getpid(), 11) if {HIDDEN} else {RIGHT}",
}


@pytest.mark.parametrize("verdict", HURT)
def test_what_an_earlier_one_left_costs_a_candidate_nothing(worker: WorkerContext, verdict: str) -> None:
    assert seen(judged(worker, RIGHT, HIDE, owner=verdict)) == (Status.PASSED, FRESH)
    assert seen(judged(worker, HURT[verdict], owner=verdict)) == (Status.PASSED, again(verdict))
    assert seen(judged(worker, owner=verdict)) == (Status.PASSED, USED), "the second process is kept"


def test_a_call_that_never_ends_has_its_time_again(worker: WorkerContext) -> None:
    judged(worker, RIGHT, HIDE, owner="hangs")
    before = f"import time\ndef wait():\n    while {HIDDEN}: time.sleep(0.01)\n    return 0"
    assert seen(judged(worker, f"{RIGHT} + wait()", before, owner="hangs", timeout=4)) == (
        Status.PASSED,
        again("timeout"),
    )


def test_outputs_of_an_earlier_job_are_wrong(worker: WorkerContext) -> None:
    """The second candidate returns what the first one computed, where it finds that."""
    hides = "import linecache\ndef kept(y):\n    linecache.cache['hidden'] = y.tolist()\n    return y"
    assert seen(judged(worker, f"kept({RIGHT})", hides, owner="helped")) == (Status.PASSED, FRESH)
    replayed = f"torch.tensor({HIDDEN} or 0.0) + 0 * x"
    assert seen(judged(worker, replayed, owner="helped")) == (Status.WRONG_RESULT, again("wrong_result"))


LEAVE = {
    "a file": "open('calls', 'a').write('1')",
    "a thread": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
    "a process": "import subprocess\nsubprocess.Popen(['sleep', '100'])",
    "a tensor": "import linecache\nlinecache.cache['kept'] = torch.ones(4)",
    "a patch": "nn.functional.relu = torch.tanh",
    "a setting": "torch.set_num_threads(2)",
    "output": "print('loaded')",
}


@pytest.mark.parametrize("left", LEAVE)
def test_a_process_in_which_something_is_left_is_not_kept(worker: WorkerContext, left: str) -> None:
    reports = [judged(worker, RIGHT, before, owner=left) for before in (LEAVE[left], "")]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH)] * 2


def test_environment_and_random_numbers_are_those_of_a_new_process(worker: WorkerContext) -> None:
    before = "import os\nassert 'MINE' not in os.environ\nos.environ['MINE'] = '1'\nFIRST = torch.randn(4)\n"
    source = before + SOFTMAX.replace("(x, -1)", "(x, -1) + FIRST.sum()")
    reports = [
        judged(worker, f"{RIGHT} + FIRST.sum()", before, owner="restored", reference=kernel(source)) for _ in range(3)
    ]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH), (Status.PASSED, USED), (Status.PASSED, USED)]


def test_another_key_has_a_process_of_its_own(worker: WorkerContext) -> None:
    reports = [judged(worker, owner=owner) for owner in ("ann", "ann", "ben", None)]
    assert [report.device.isolation for report in reports] == [FRESH, USED, FRESH, FRESH]


def test_a_fault_of_the_service_in_a_used_process_is_judged_again(worker: WorkerContext) -> None:
    judged(worker, owner="ours")
    callbacks, killed = killing(worker.used_candidate.warm)
    report = run(request(owner="ours"), worker, callbacks)
    assert killed and report.outcome.status is Status.PASSED
    # Without seccomp a kernel may have killed itself.
    assert report.device.isolation in (again("infrastructure_error"), again("out_of_memory"))


def test_a_process_that_was_killed_between_jobs_is_replaced(worker: WorkerContext) -> None:
    judged(worker, owner="killed")
    warm = worker.used_candidate.warm
    assert warm is not None
    os.kill(warm.runner.session.runner.pid, signal.SIGKILL)
    wait_for_end(warm.runner.session)
    assert seen(judged(worker, owner="killed")) == (Status.PASSED, FRESH)


@pytest.fixture
def device_bytes(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What the driver tells of a process's device memory to a keeper of used runners that any job may end."""
    told = [0]
    idle = IdleProcesses(f"test-{os.getpid()}")
    kept = KeptRunner(
        9, 60, worker.device, lambda _: nullcontext(), idle, new_kernels=True, device_bytes=lambda _: told[-1]
    )
    worker.used_candidate.close()
    monkeypatch.setattr(worker, "used_candidate", kept)
    yield told
    kept.close()


@pytest.mark.usefixtures("device_bytes")
def test_jobs_that_lack_memory_end_a_used_process(worker: WorkerContext) -> None:
    assert [judged(worker).device.isolation for _ in range(2)] == [FRESH, USED]
    assert IdleProcesses(f"test-{os.getpid()}").end_all() == 1
    assert [judged(worker).device.isolation for _ in range(2)] == [FRESH, USED]


@pytest.mark.parametrize(("growth", "second"), [(GROWTH_BYTES, USED), (GROWTH_BYTES + 1, FRESH)])
def test_a_process_whose_device_memory_grew_is_not_kept(
    worker: WorkerContext, device_bytes: list[int], growth: int, second: dict[str, str]
) -> None:
    def grow(stage: Stage) -> None:
        if stage is Stage.TIME:
            device_bytes.append(growth)

    run(request(), worker, JobCallbacks(grow))
    assert judged(worker).device.isolation == second


def test_by_default_each_candidate_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "has_host_code", False)
    monkeypatch.delenv("CONTEXT_REUSES", raising=False)
    with own_worker() as usual:
        assert [seen(judged(usual)) for _ in range(2)] == [(Status.PASSED, FRESH)] * 2
        assert usual.used_candidate.warm is None


def test_no_process_is_used_again_where_kernels_reach_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "has_host_code", False)
    monkeypatch.setattr(Device, "reaches_host_memory", True)
    monkeypatch.setenv("CONTEXT_REUSES", "3")
    with own_worker() as exposed:
        assert [seen(judged(exposed)) for _ in range(2)] == [(Status.PASSED, FRESH)] * 2
        assert not exposed.used_candidate.enabled
