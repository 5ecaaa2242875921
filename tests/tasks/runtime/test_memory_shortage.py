"""Who is to blame for a lack of device memory. Runners and programs are real; a made-up card says what each holds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch

from backends.base import Artifact
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Status
from profiling.gpu.timing_device import Device
from sandbox.isolation import process_tree
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.memory_plan import MemoryPlan
from tasks.runtime.stream_isolation import Queues, RestartJob
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.judging import SOFTMAX, forward, kernel

GIB = 1 << 30
MEMORY = 100 * GIB
STARTS_A_DAEMON = f'import subprocess\nsubprocess.run(["sh", "-c", "sleep 600 &"])\n{SOFTMAX}'
ONE_CALL = Queues(one_call=True)


class Card(Device):
    """A card of 100 GiB. `held` has what the process of each pid holds of it as long as it lives, in bytes."""

    memory = MEMORY

    def __init__(self) -> None:
        super().__init__("cpu")
        self.is_cuda = True
        self.held: dict[int, int] = {}
        self.arenas: list[Arena] = []

    @property
    def free(self) -> int:
        living = sum(size for pid, size in self.held.items() if process_tree.living_thread_dir(pid))
        return MEMORY - living - sum(arena.bytes.numel() for arena in self.arenas)

    @property
    def left_by_others(self) -> int:
        return self.free

    def empty_cache(self) -> None: ...


class Arena:
    """An arena of 60 GiB on that card."""

    descriptor = -1

    def __init__(self, card: Card) -> None:
        self.bytes = torch.empty(60 * GIB, dtype=torch.uint8, device="meta")
        self._card = card
        card.arenas.append(self)

    def close(self) -> None:
        self._card.arenas.remove(self)


class Job:
    """A comparison whose kernels are loaded, and whose memory is planned now."""

    def __init__(self, worker: WorkerContext, card: Card, queues: Queues) -> None:
        wire = {"kernel": forward("return x"), "reference": kernel(SOFTMAX), "timeout": 600}
        self.context = JobContext.of(Request.from_wire(wire), worker, None, queues)
        self.reference = KernelRun(REFERENCE, Kernel(SOFTMAX, KernelType.TORCH), worker.folder)
        self.candidate = KernelRun(CANDIDATE, Kernel(STARTS_A_DAEMON, KernelType.TORCH), worker.folder, self.reference)
        for run in (self.reference, self.candidate):
            folder = worker.private_folder(worker.folder / f"{run.role}-{time.monotonic_ns()}")
            run.session = worker.session(folder, gpu=True, deadline=time.monotonic() + 60, cancelled=lambda: False)
            run.session.load(run.kernel, Artifact(), None, 0)
        pids = process_tree.with_descendants(self.candidate.session.runner.pid) if self.candidate.session else set()
        (self.daemon,) = pids - {self.pid(self.candidate)}
        self.plan = MemoryPlan(self.context, [self.reference, self.candidate])
        self.card = card

    @staticmethod
    def pid(kernel_run: KernelRun) -> int:
        return kernel_run.open_session.runner.pid

    def lacks_memory(self, kernel_run: KernelRun, status: Status = Status.OUT_OF_MEMORY) -> None:
        """That kernel fails for lack of memory, inside the plan's block."""
        with self.plan.retried():
            kernel_run.fail(KernelFault(status, "CUDA out of memory"))

    def referee_lacks_memory(self) -> None:
        with self.plan.retried():
            raise torch.OutOfMemoryError("for its copy")


Planned = Callable[..., Job]


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        yield opened


@pytest.fixture
def card(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(worker, "device", card)
    monkeypatch.setattr(worker, "usual_memory", MEMORY * 2 // 5)
    monkeypatch.setattr(worker, "one_call_memory", MEMORY * 9 // 10)
    return card


@pytest.fixture
def planned(worker: WorkerContext, card: Card) -> Iterator[Planned]:
    with ExitStack() as ends:

        def plan(queues: Queues | None = None) -> Job:
            job = Job(worker, card, queues or Queues())
            for run in (job.reference, job.candidate):
                ends.callback(run.close)
            return job

        yield plan


@contextmanager
def neighbour(card: Card, size: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another program, which holds so many bytes of the card."""
    with subprocess.Popen(["sleep", "600"]) as program:
        card.held[program.pid] = size
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("queues", [Queues(), ONE_CALL], ids=["usual", "one call"])
@pytest.mark.parametrize("who", [REFERENCE, CANDIDATE, "referee"])
def test_a_lack_is_nobodys_fault_after_another_program_took_memory(
    planned: Planned, card: Card, who: str, queues: Queues
) -> None:
    job = planned(queues)
    with neighbour(card, 70 * GIB), pytest.raises(InfrastructureFault, match="grew by 71680 MiB"):
        if who == "referee":
            job.referee_lacks_memory()
        job.lacks_memory(job.reference if who == REFERENCE else job.candidate)


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.CRASHED])
@pytest.mark.parametrize(("taken", "fault"), [(95, InfrastructureFault), (80, Stopped)])
def test_a_failure_of_another_kind_is_nobodys_fault_only_after_a_program_took_nearly_all(
    planned: Planned, card: Card, status: Status, taken: int, fault: type[Exception]
) -> None:
    job = planned()
    with neighbour(card, taken * GIB), pytest.raises(fault):
        job.lacks_memory(job.candidate, status)


def test_a_failure_of_another_kind_is_the_kernels_where_it_filled_the_device(planned: Planned, card: Card) -> None:
    job = planned()
    card.held[job.pid(job.candidate)] = 95 * GIB
    with pytest.raises(Stopped):
        job.lacks_memory(job.candidate, Status.RUNTIME_ERROR)
    assert job.candidate.fault is not None and job.candidate.fault.status is Status.RUNTIME_ERROR


def test_a_program_that_gave_memory_back_since_the_plan_left_too_little_then(planned: Planned, card: Card) -> None:
    with neighbour(card, 40 * GIB):
        job = planned()
    with pytest.raises(InfrastructureFault, match="shrank by 40960 MiB"):
        job.lacks_memory(job.reference)


def test_what_another_program_held_before_the_plan_excuses_nobody(planned: Planned, card: Card) -> None:
    with neighbour(card, 50 * GIB), pytest.raises(Stopped):
        job = planned()
        job.lacks_memory(job.candidate)
    assert job.candidate.fault is not None and job.candidate.fault.status is Status.OUT_OF_MEMORY
    assert "51200 MiB of the device's 102400 MiB were free before" in job.candidate.fault.message


def test_no_more_than_the_services_own_contexts_may_take_excuses_nobody(planned: Planned, card: Card) -> None:
    job = planned()
    with neighbour(card, MEMORY // 8), pytest.raises(Stopped):
        job.lacks_memory(job.reference)
    assert job.reference.fault is not None and job.reference.fault.status is Status.OUT_OF_MEMORY


def test_what_a_candidates_daemon_holds_is_the_candidates(planned: Planned, card: Card) -> None:
    """The daemon's parent has ended, and it holds its memory until the runner's end takes it along."""
    job = planned(ONE_CALL)
    card.held[job.daemon] = 60 * GIB
    with pytest.raises(Stopped):
        job.lacks_memory(job.reference)
    assert process_tree.status_of(job.daemon) is None
    assert job.reference.fault is None and job.candidate.fault is not None
    assert job.candidate.fault.status is Status.OUT_OF_MEMORY and "held 61440 MiB" in job.candidate.fault.message


def test_a_daemon_does_not_pass_for_another_program_beside_one(planned: Planned, card: Card) -> None:
    job = planned(ONE_CALL)
    card.held |= {job.daemon: 60 * GIB, job.pid(job.candidate): 20 * GIB}
    with neighbour(card, 10 * GIB), pytest.raises(Stopped):
        job.lacks_memory(job.candidate)
    assert job.candidate.fault is not None and job.candidate.fault.status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize("who", [REFERENCE, CANDIDATE])
def test_a_referee_without_memory_blames_the_kernel_that_held_most(planned: Planned, card: Card, who: str) -> None:
    job = planned(ONE_CALL)
    holder, other = (job.reference, job.candidate) if who == REFERENCE else (job.candidate, job.reference)
    card.held |= {job.pid(holder): 60 * GIB, job.pid(other): 30 * GIB}
    with pytest.raises(Stopped):
        job.referee_lacks_memory()
    assert other.fault is None and holder.fault is not None and "held 61440 MiB" in holder.fault.message


@pytest.mark.parametrize(("each", "ours"), [(20, True), (30, False)])
def test_a_referee_without_memory_for_small_calls_blames_no_kernels_that_hold_little(
    planned: Planned, card: Card, each: int, ours: bool
) -> None:
    job = planned(ONE_CALL)
    card.held |= {job.pid(job.reference): each * GIB, job.pid(job.candidate): each * GIB}
    with pytest.raises(InfrastructureFault if ours else Stopped):
        job.referee_lacks_memory()
    message = "" if job.reference.fault is None else job.reference.fault.message
    assert job.candidate.fault is None and ("the kernels held 61440 MiB" in message) is not ours


@pytest.mark.parametrize(("held", "blamed"), [(45, CANDIDATE), (15, REFERENCE)])
def test_a_referee_without_memory_for_large_calls_blames_a_candidate_that_holds_far_more_than_its_reference(
    planned: Planned, card: Card, held: int, blamed: str
) -> None:
    job = planned(ONE_CALL)
    job.plan.admit(4 * GIB, 4 * GIB)
    card.held |= {job.pid(job.reference): 5 * GIB, job.pid(job.candidate): held * GIB}
    with pytest.raises(Stopped):
        job.referee_lacks_memory()
    assert [run.role for run in (job.reference, job.candidate) if run.fault is not None] == [blamed]


def test_most_of_what_another_program_leaves_is_most(planned: Planned, card: Card) -> None:
    with neighbour(card, 50 * GIB):
        job = planned(ONE_CALL)
        card.held[job.pid(job.candidate)] = 30 * GIB
        with pytest.raises(Stopped):
            job.lacks_memory(job.reference)
    assert job.reference.fault is None and job.candidate.fault is not None


def test_an_arena_is_not_what_a_kernel_holds(planned: Planned, card: Card) -> None:
    job = planned(ONE_CALL)
    job.candidate.open_session.arena = Arena(card)
    with pytest.raises(Stopped):
        job.lacks_memory(job.reference)
    assert job.candidate.fault is None and job.reference.fault is not None


@pytest.mark.parametrize("who", [REFERENCE, CANDIDATE])
def test_a_kernel_that_lacks_what_the_other_one_holds_has_a_turn_of_its_own_first(
    planned: Planned, card: Card, who: str
) -> None:
    """Both may keep half of the device cached, though their calls are small."""
    job = planned()
    failing, other = (job.reference, job.candidate) if who == REFERENCE else (job.candidate, job.reference)
    card.held[job.pid(other)] = 55 * GIB
    with pytest.raises(RestartJob) as again:
        job.lacks_memory(failing)
    assert again.value.queues.one_call


def test_a_kernel_that_takes_the_device_alone_gets_no_second_try(planned: Planned, card: Card) -> None:
    job = planned()
    card.held[job.pid(job.candidate)] = 99 * GIB
    with pytest.raises(Stopped):
        job.lacks_memory(job.candidate)


@pytest.mark.parametrize(("taken", "restarts"), [(60, True), (97, False)])
def test_large_calls_are_judged_one_at_a_time_beside_another_program_if_they_fit(
    planned: Planned, card: Card, taken: int, restarts: bool
) -> None:
    job = planned()
    job.plan.admit(GIB, GIB)
    with neighbour(card, taken * GIB), pytest.raises(RestartJob if restarts else InfrastructureFault):
        job.lacks_memory(job.reference)


def test_what_was_taken_before_a_restart_counts_in_the_restarted_job(planned: Planned, card: Card) -> None:
    first = planned()
    first.plan.admit(GIB, GIB)
    with neighbour(card, 60 * GIB):
        with pytest.raises(RestartJob) as again:
            first.lacks_memory(first.reference)
        second = planned(again.value.after(1.0, first.plan.left_bytes).queues)
        with pytest.raises(InfrastructureFault, match="grew by 61440 MiB"):
            second.lacks_memory(second.reference)
