"""A job's report comes before its runners' death, and nothing of the job is left when the next one begins."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from domain.fault import InfrastructureFault, JobCancelled
from domain.job import Stage
from domain.request import Request
from domain.result import Report, Status
from sandbox.supervisor.captured_output import MAX_BYTES
from sandbox.supervisor.messages import CodeListing
from sandbox.supervisor.runner_process import RunnerProcess
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tasks.evaluation.pipeline import run
from tasks.node.device_lease import device_lease
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.teardown import end
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.null_window_recheck import NullWindowRecheck
from tests.own_worker import own_worker
from tests.tasks.example_jobs import until
from tests.tasks.node.lease_queue import in_line

RIGHT = """
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(64, 32)]
"""
TALKATIVE = f"import sys\nsys.stdout.write('first' + 'x' * {3 * MAX_BYTES} + 'last')\nsys.stdout.flush()\n"
FLOODING = """
import os
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(1, b"flood" * 10_000)
"""


@pytest.fixture(scope="module")
def opened() -> Iterator[WorkerContext]:
    """Of a service in which every runner ends with its job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARM_REFERENCE_SECONDS", "0")
        with own_worker() as worker:
            yield worker


@pytest.fixture
def worker(opened: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerContext]:
    """Of a device whose runners may end when it has been given back."""
    monkeypatch.setattr(type(opened.device), "has_room", True)
    monkeypatch.setattr(
        opened, "block_context_creation", lambda cancelled, queue_offset_s=0.0: device_lease("test-quiet", cancelled)
    )
    monkeypatch.setattr(NullWindowRecheck, "can_skip", lambda *_: True)
    yield opened
    opened.refill_pool()


@pytest.fixture
def may_die(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """No runner is reaped from a job's end on, until it is set."""
    allowed, rest, reap = Event(), worker.release_job_memory, Zygote.reap
    allowed.set()

    def held(self: Zygote, pid: int, user: int) -> int:
        assert allowed.wait(30)
        return reap(self, pid, user)

    monkeypatch.setattr(worker, "release_job_memory", lambda: (rest(), allowed.clear()))
    monkeypatch.setattr(Zygote, "reap", held)
    yield allowed
    allowed.set()
    worker.refill_pool()


def wire(source: str, *, compares: bool = False) -> dict[str, Any]:
    kernel = {"source_code": source, "kernel_type": "torch"}
    reference = kernel if compares else None
    return {"kernel": kernel, "reference": reference, "num_trials": 5, "timeout": 30, "atol": 1e-2, "rtol": 1e-2}


def judged(worker: WorkerContext, source: str, *, compares: bool = False) -> Report:
    request = Request.from_wire(wire(source, compares=compares))
    return run(request, worker)


def is_free(device: str) -> bool:
    try:
        with device_lease(device, lambda: True):
            return True
    except JobCancelled:
        return False


def is_free_within(device: str, seconds: float) -> bool:
    until = time.monotonic() + seconds
    try:
        with device_lease(device, lambda: time.monotonic() > until):
            return True
    except JobCancelled:
        return False


def jobs(worker: WorkerContext) -> list[Path]:
    return [path for path in worker.folder.iterdir() if path.name.startswith("job-")]


def state(pid: int) -> str:
    """As the system has it: R, S, Z for who is dead and not reaped; nothing of who is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("compares", [False, True])
def test_the_report_is_there_before_its_runners_are_gone(
    worker: WorkerContext, may_die: Event, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    stopped: list[int] = []
    stop = RunnerProcess.stop
    monkeypatch.setattr(RunnerProcess, "stop", lambda self: (stopped.append(self.pid), stop(self)))
    report = judged(worker, "print('to the end')\n" + RIGHT, compares=compares)
    assert report.outcome.status is Status.PASSED and report.outcome.output == "to the end\n"
    runner, until = stopped[-1], time.monotonic() + 10
    while state(runner) not in "Z":  # It was killed, and runs no more whoever looks after it.
        assert time.monotonic() < until
    assert state(runner) == "Z" and jobs(worker)
    assert is_free(worker.device_id) and not is_free("test-quiet")
    may_die.set()
    worker.refill_pool()
    assert not state(runner) and not jobs(worker) and is_free("test-quiet")


@pytest.mark.parametrize("others_have_it_quiet", [False, True])
def test_the_device_is_given_back_first(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, others_have_it_quiet: bool
) -> None:
    given_back: list[bool] = []
    rest, reap = worker.release_job_memory, Zygote.reap

    def resting() -> None:
        rest()
        given_back.clear()
        if others_have_it_quiet:
            held.enter_context(device_lease("test-quiet", lambda: False))

    monkeypatch.setattr(worker, "release_job_memory", resting)
    monkeypatch.setattr(Zygote, "reap", lambda *args: (given_back.append(is_free(worker.device_id)), reap(*args))[1])
    with ExitStack() as held:
        report = judged(worker, RIGHT, compares=True)
        worker.refill_pool()  # Who is dead waits for nobody, and whoever has it quiet for nobody who is dead.
    assert report.outcome.status is Status.PASSED
    assert given_back == [True]


def test_who_dies_while_others_have_it_quiet_stands_before_whoever_wants_it_next(worker: WorkerContext) -> None:
    order: list[str] = []

    class Unkillable:
        alive = True
        stays = False

        def collect_output(self) -> None: ...

        def stop(self) -> None: ...

        def close(self) -> None:
            order.append("closed")

    def want() -> None:
        with device_lease("test-quiet", lambda: False):
            order.append("windows")

    one: Any = Unkillable()
    with ThreadPoolExecutor(2) as others:
        with device_lease("test-quiet", lambda: False):
            dying = ExitStack()
            end([one], worker, dying)
            closing = others.submit(dying.close)
            until(lambda: in_line("test-quiet") == 2)
            wanting = others.submit(want)
            until(lambda: in_line("test-quiet") == 3)
            assert not order
        closing.result(10)
        wanting.result(10)
    assert order[0] == "closed" and order.count("windows") == 1


def test_windows_of_others_do_not_wait_until_the_verdict_has_arrived(worker: WorkerContext) -> None:
    judged(worker, RIGHT)
    assert is_free_within("test-quiet", 10.0)


def test_the_next_job_begins_when_the_last_is_gone(worker: WorkerContext, may_die: Event) -> None:
    judged(worker, RIGHT)
    (last,) = jobs(worker)
    begun = Event()
    with ThreadPoolExecutor(1) as other:
        second = other.submit(run, Request.from_wire(wire(RIGHT)), worker, JobCallbacks(lambda stage: begun.set()))
        assert not begun.wait(0.3)
        may_die.set()
        assert begun.wait(30) and not last.exists()
        assert second.result().outcome.status is Status.PASSED


def test_nothing_is_left_when_the_bench_is_closed() -> None:
    with own_worker() as worker:
        judged(worker, RIGHT)
        folder = worker.folder
    assert not folder.exists()


def test_code_is_read_when_the_runners_are_gone(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    states: list[str] = []
    stop = RunnerProcess.stop
    monkeypatch.setattr(RunnerProcess, "stop", lambda self: (stopped.append(self.pid), stop(self)))
    monkeypatch.setattr(Session, "code", lambda *_: states.append(state(stopped[-1])) or CodeListing([], []))
    asked = Request.from_wire(wire(RIGHT) | {"artifacts": ["ptx"]})
    assert run(asked, worker).outcome.status is Status.PASSED
    assert states == [""]


def test_who_is_told_to_end_while_it_waits_waits_once_more(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    last: Future[None] = Future()
    worker.teardown._last = last
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(last, "result", sys.exit)
        worker.teardown.join()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(worker.teardown.join)
        assert not waiting.done()
        last.set_result(None)
        waiting.result(10)


def test_what_was_printed_is_whole(worker: WorkerContext) -> None:
    output = judged(worker, TALKATIVE + RIGHT).outcome.output
    assert output.startswith("first" + "x" * (MAX_BYTES - 5)) and output.endswith("x" * (MAX_BYTES - 4) + "last")


def test_who_prints_for_ever_keeps_nobody(worker: WorkerContext) -> None:
    report = judged(worker, FLOODING + RIGHT)
    assert report.outcome.status is Status.PASSED and "bytes left out" in report.outcome.output
    worker.refill_pool()
    assert not jobs(worker)


def test_what_does_not_end_is_told_and_is_no_job_s_fault(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zygote, rest = worker.zygote, worker.release_job_memory

    def broken(*_: object) -> int:
        raise InfrastructureFault("the zygote answers nonsense")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "release_job_memory", lambda: (rest(), patch.setattr(Zygote, "reap", broken)))
        assert judged(worker, RIGHT).outcome.status is Status.PASSED
        assert is_free_within("test-quiet", 10.0)
    with caplog.at_level(logging.ERROR):
        assert judged(worker, RIGHT).outcome.status is Status.PASSED
    assert [record.message for record in caplog.records] == [
        "the last job's runners did not end: the zygote answers nonsense"
    ]
    assert worker.zygote is not zygote and not zygote.alive
    worker.refill_pool()
    assert not jobs(worker) and is_free("test-quiet")


def test_a_job_without_a_report_ends_its_runners_itself(worker: WorkerContext) -> None:
    cancelled: list[bool] = []

    def progress(stage: Stage) -> None:
        if stage is Stage.VALIDATE:
            cancelled.append(True)

    with pytest.raises(JobCancelled):
        run(Request.from_wire(wire(RIGHT)), worker, JobCallbacks(progress, lambda: bool(cancelled)))
    assert not jobs(worker) and is_free("test-quiet")
