"""A reference's runner serves the next jobs with the same reference, and nothing of an earlier job shows in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from domain.fault import InfrastructureFault
from domain.request import Request
from domain.result import Report, Status
from profiling.gpu.xid_errors import CardError
from tasks.evaluation.pipeline import run
from tasks.runtime.kept_runner import MOST_BYTES, KeptRunner
from tasks.runtime.runner_keys import reference_key
from tasks.runtime.stream_isolation import Queues
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.judging import INPUTS, SOFTMAX, forward, kernel, killing, opened, wait_for_end

WARM, FRESH = "warm", "fresh"
RIGHT, WRONG = forward("return torch.softmax(x, -1)"), forward("return torch.softmax(x, 0)")
NORM = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)
        self.linear = nn.Linear(32, 8)
    def forward(self, x):
        return {result}
"""
REFERENCE_NORM = NORM.format(name="Model", result="self.linear(self.norm(x))") + INPUTS


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARM_REFERENCE_SECONDS", "30")
        yield from opened()


def request(candidate: dict[str, Any], reference: str = SOFTMAX, owner: str | None = None, **more: Any) -> Request:
    wire = {"kernel": candidate, "reference": kernel(reference), "num_trials": 4, "timeout": 60, "budget": "quick"}
    return replace(Request.from_wire(wire | {"target_precision": 0.5} | more), owner=owner)


def seen(report: Report) -> tuple[Status, str | None]:
    return report.outcome.status, report.device.reference_runner


def test_sixteen_candidates_of_one_reference_have_the_verdicts_of_fresh_ones(worker: WorkerContext) -> None:
    """A third is wrong. The reference draws at import, and its calls change running statistics.

    Candidates get these: each fails unless they are those of a new model.
    """
    source = "NOISE = torch.randn(32)\n" + NORM
    reference = source.format(name="Model", result="self.linear(self.norm.train()(x + NOISE))") + INPUTS
    as_new = "(self.__dict__.setdefault('as_new', not self.norm.running_mean.any()) or 1 / 0)"
    right = kernel(source.format(name="ModelNew", result=f"{as_new} and self.linear(self.norm.train()(x + NOISE))"))
    wrong = kernel(source.format(name="ModelNew", result=f"{as_new} and self.linear(self.norm.eval()(x + NOISE))"))
    candidates = [wrong if number % 3 == 1 else right for number in range(16)]
    reports = [run(request(candidate, reference), worker) for candidate in candidates]
    expected = [Status.WRONG_RESULT if candidate is wrong else Status.PASSED for candidate in candidates]
    assert [report.outcome.status for report in reports] == expected
    assert [report.device.reference_runner for report in reports] == [FRESH, *[WARM] * 15]
    assert reports[-1].body("j")["environment"]["reference_runner"] == WARM


def test_each_job_has_weights_of_its_own(worker: WorkerContext) -> None:
    prints = "print(float(self.linear.weight.sum())) or self.linear(self.norm(x))"
    candidate = kernel(NORM.format(name="ModelNew", result=prints))
    reports = [run(request(candidate, REFERENCE_NORM, owner="weights"), worker) for _ in range(2)]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH), (Status.PASSED, WARM)]
    first, second = (report.outcome.output.splitlines()[0] for report in reports)
    assert first != second


def test_a_candidate_that_ignores_constant_weights_is_wrong_beside_a_warm_reference(worker: WorkerContext) -> None:
    """The check changes the reference's weights, and the next job must not see that."""
    honest = kernel(NORM.format(name="ModelNew", result="self.linear(self.norm(x))"))
    ignoring = kernel(NORM.format(name="ModelNew", result="self.linear(x / (1 + self.norm.eps) ** 0.5)"))
    reports = [
        run(request(candidate, REFERENCE_NORM, owner="constant", budget="default"), worker)
        for candidate in (honest, ignoring, honest)
    ]
    statuses = [Status.PASSED, Status.WRONG_RESULT, Status.PASSED]
    assert list(map(seen, reports)) == list(zip(statuses, (FRESH, WARM, WARM), strict=True))


def test_a_runner_is_kept_in_the_background_where_runners_may_end_later(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(worker.device), "has_room", True)
    reports = [run(request(candidate, owner="later"), worker) for candidate in (RIGHT, WRONG, RIGHT)]
    statuses = [Status.PASSED, Status.WRONG_RESULT, Status.PASSED]
    assert list(map(seen, reports)) == list(zip(statuses, (FRESH, WARM, WARM), strict=True))


def test_another_key_does_not_share_a_reference(worker: WorkerContext) -> None:
    reports = [run(request(RIGHT, owner=owner), worker) for owner in ("ann", "ann", "ben", None)]
    assert [report.device.reference_runner for report in reports] == [FRESH, WARM, FRESH, FRESH]


def test_a_reference_that_was_killed_between_jobs_is_replaced(worker: WorkerContext) -> None:
    run(request(RIGHT, owner="killed"), worker)
    warm = worker.warm_reference.warm
    assert warm is not None
    os.kill(warm.runner.session.runner.pid, signal.SIGKILL)
    wait_for_end(warm.runner.session)
    reports = [run(request(candidate, owner="killed"), worker) for candidate in (RIGHT, WRONG)]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH), (Status.WRONG_RESULT, WARM)]
    assert not warm.runner.folder.exists()


@pytest.mark.parametrize("end", ["raise ValueError", "import os; os.kill(os.getpid(), 11)"])
def test_a_candidate_that_fails_takes_the_reference_along(worker: WorkerContext, end: str) -> None:
    run(request(RIGHT, owner=end), worker)
    failed = run(request(forward(end), owner=end), worker)
    assert failed.device.reference_runner == WARM and failed.outcome.status is not Status.PASSED
    assert worker.warm_reference.warm is None
    assert seen(run(request(RIGHT, owner=end), worker)) == (Status.PASSED, FRESH)


def test_a_candidate_that_does_not_compile_leaves_the_reference(worker: WorkerContext) -> None:
    run(request(RIGHT, owner="compiles"), worker)
    assert run(request(kernel("def broken(:"), owner="compiles"), worker).outcome.status is Status.COMPILE_ERROR
    assert seen(run(request(RIGHT, owner="compiles"), worker)) == (Status.PASSED, WARM)


LEAVE = {
    "a file": ("open('calls', 'a').write('1')", "changed files (of ['calls"),
    "a thread": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "threads (1 before, 2 now)",
    ),
    "a process": ("import subprocess\nsubprocess.Popen(['sleep', '100'])", "a process"),
    "a hook": (
        "nn.modules.module.register_module_forward_pre_hook(lambda module, args: None)",
        "objects of the source (0 before, ",
    ),
    "a tensor": ("import linecache\nlinecache.cache['kept'] = torch.ones(4)", "tensors ("),
    "a patch": ("nn.functional.relu = torch.tanh", "names in torch (torch.nn.functional.relu)"),
    "a setting": (
        "torch.backends.cudnn.benchmark = True",
        "settings of torch (number 11: False before, True now)",
    ),
    "an operator": ("torch.library.define('kept::f', '(Tensor x) -> Tensor')", "operators or modules of the source"),
    "a name": ("torch.calls_of_mine = 1", "names in torch (torch.calls_of_mine)"),
    "output": ("print('loaded')", "it prints"),
}


@pytest.mark.parametrize("left", LEAVE)
def test_a_reference_that_leaves_something_in_its_process_is_not_kept(worker: WorkerContext, left: str) -> None:
    statement, reason = LEAVE[left]
    leaving = request(RIGHT, f"{statement}\n{SOFTMAX}")
    report = run(leaving, worker)
    assert seen(report) == (Status.PASSED, FRESH), report.outcome.message
    warm = worker.warm_reference.warm
    assert warm is None or warm.key != reference_key(leaving, Queues())
    assert reason in str(worker.warm_reference.refusal)


def test_what_is_restored_in_the_process_is_as_in_a_new_one(worker: WorkerContext) -> None:
    """The source would see an environment or random numbers of the last job, which a new process has not."""
    changing = "import os\nassert 'MINE' not in os.environ\nos.environ['MINE'] = '1'\nos.chdir('/')\n"
    drawn = f"{changing}FIRST = torch.randn(4)\n"
    reference = drawn + SOFTMAX.replace("(x, -1)", "(x, -1) + FIRST.sum()")
    candidate = kernel(drawn + forward("return torch.softmax(x, -1) + FIRST.sum()")["source_code"])
    reports = [run(request(candidate, reference, owner="restored"), worker) for _ in range(3)]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH), (Status.PASSED, WARM), (Status.PASSED, WARM)]


ONLY_ONCE = {
    "start method": "import multiprocessing\nmultiprocessing.set_start_method('spawn')",
    "threads between operators": "torch.set_num_interop_threads(1)",
}
"""What a process can do once, and leaves nothing that the comparison of its state looks at."""


@pytest.mark.parametrize("once", ONLY_ONCE)
def test_a_reference_that_fails_in_a_kept_process_is_judged_again_in_a_new_one(
    worker: WorkerContext, once: str
) -> None:
    reference = f"{ONLY_ONCE[once]}\n{SOFTMAX}"
    reports = [run(request(candidate, reference, owner=once), worker) for candidate in (RIGHT, WRONG)]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH), (Status.WRONG_RESULT, FRESH)]
    assert [report.device.isolation for report in reports] == [
        {"process": "fresh"},
        {"process": "fresh", "used_process_verdict": "reference_failed"},
    ]


def test_a_kept_reference_that_is_killed_during_a_job_costs_no_attempt(worker: WorkerContext) -> None:
    run(request(RIGHT, owner="ours"), worker)
    callbacks, killed = killing(worker.warm_reference.warm)
    report = run(request(RIGHT, owner="ours"), worker, callbacks)
    assert killed and seen(report) == (Status.PASSED, FRESH)


class FailingCard:
    """What the driver would report of a card that falls off the bus in each job."""

    def __init__(self) -> None:
        self.jobs = 0

    def discard_pending(self) -> None:
        self.jobs += 1

    def take_new(self, within_s: float = 0.0) -> list[CardError]:
        return [CardError(79)]


def test_a_card_that_fails_beside_a_kept_reference_fails_the_attempt(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request(RIGHT, owner="card"), worker)
    assert worker.warm_reference.warm is not None
    failing = FailingCard()
    monkeypatch.setattr(worker, "card_errors", failing)
    with pytest.raises(InfrastructureFault, match="Xid 79"):
        run(request(RIGHT, owner="card"), worker)
    assert failing.jobs == 1, "it is not judged again on that card"
    assert worker.warm_reference.warm is None


def test_short_memory_ends_the_runner_of_another_reference(worker: WorkerContext) -> None:
    run(request(RIGHT, owner="short"), worker)
    warm = worker.warm_reference.warm
    assert warm is not None
    assert worker.warm_reference.take("another", lambda: False, memory_is_short=False) is None
    assert worker.warm_reference.warm is warm and warm.usable
    assert worker.warm_reference.take("another", lambda: False, memory_is_short=True) is None
    assert worker.warm_reference.warm is None and not warm.runner.session.runner.alive
    assert not warm.runner.folder.exists()


def test_a_job_that_judges_calls_one_at_a_time_keeps_no_reference(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request(RIGHT, owner="large"), worker)
    monkeypatch.setattr(worker, "usual_memory", 64 << 10)
    assert seen(run(request(RIGHT, owner="large"), worker)) == (Status.PASSED, WARM)
    assert worker.warm_reference.warm is None


@pytest.mark.parametrize(("device_bytes", "second"), [(None, WARM), (MOST_BYTES, WARM), (MOST_BYTES + 1, FRESH)])
def test_a_reference_that_holds_device_memory_by_other_means_than_torch_is_not_kept(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, device_bytes: int | None, second: str
) -> None:
    kept = KeptRunner(9, 60, worker.device, lambda _: nullcontext(), device_bytes=lambda _: device_bytes)
    monkeypatch.setattr(worker, "warm_reference", kept)
    reports = [run(request(RIGHT), worker) for _ in range(2)]
    assert list(map(seen, reports)) == [(Status.PASSED, FRESH), (Status.PASSED, second)]
    kept.close()


def test_an_idle_runner_ends_by_itself_and_none_is_kept_where_the_setting_is_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARM_REFERENCE_SECONDS", "0.01")
    with own_worker() as idle:
        run(request(RIGHT), idle)
        warm = idle.warm_reference.warm
        assert warm is not None
        wait_for_end(warm.runner.session)
        assert seen(run(request(RIGHT), idle)) == (Status.PASSED, FRESH)
    assert not warm.runner.folder.exists()
    monkeypatch.setenv("WARM_REFERENCE_SECONDS", "0")
    with own_worker() as none:
        run(request(RIGHT), none)
        assert none.warm_reference.warm is None


def test_only_jobs_that_may_share_a_runner_have_a_key() -> None:
    plain = request(RIGHT)
    assert reference_key(plain, Queues()) == reference_key(request(WRONG, num_trials=9), Queues()) is not None
    others = [replace(plain, owner="ann"), request(RIGHT, draw_on="host"), request(RIGHT, SOFTMAX + "\n")]
    others.append(replace(plain, gradients=True))
    assert len({reference_key(each, Queues()) for each in (plain, *others)}) == 5
    alone = [replace(plain, reference=None), replace(plain, profile=True), request(RIGHT, budget="precise")]
    alone.append(replace(plain, reference=replace(plain.kernel, kernel_type="torch_cuda")))
    assert [reference_key(each, Queues()) for each in alone] == [None] * 4
    assert reference_key(plain, Queues(one_call=True)) is None
    assert reference_key(plain, Queues(frozenset({"reference"}))) is None
