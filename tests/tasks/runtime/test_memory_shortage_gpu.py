"""A GPU whose memory another program takes while a job runs, or the job's own candidate does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from domain.fault import InfrastructureFault
from domain.job import Stage
from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

LEFT_GIB, SCRATCH_GIB = 8, 16
"""What the other program leaves free, and what a call of the kernel that lacks memory takes beside its tensors."""
SOURCE = """
class {name}(nn.Module):
    def forward(self, x):
        torch.empty({scratch} << 30, dtype=torch.uint8, device=x.device)
        return x * 2
def get_inputs():
    return [torch.randn({size}, device="cuda")]
"""
GREEDY = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        free, _ = torch.cuda.mem_get_info()
        self.taken = torch.empty(free - (4 << 30), dtype=torch.uint8, device="cuda")
    def forward(self, x):
        return x * 2
"""
NEIGHBOUR = """
import sys, torch
torch.empty((), device="cuda")
print("ready", flush=True)
for left in sys.stdin:
    torch.cuda.empty_cache()
    taken = torch.empty(torch.cuda.mem_get_info()[0] - (int(left) << 30), dtype=torch.uint8, device="cuda")
    print(taken.numel() >> 30, flush=True)
"""
"""Takes all but so many GiB of the card, as each line of its input says, and answers with what it took."""


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        opened.ceilings()
        yield opened


class Neighbour:
    """A program that is not the service's."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.took_gib = 0
        assert self._answer() == "ready"

    def take_all_but(self, left_gib: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{left_gib}\n")
        self._process.stdin.flush()
        self.took_gib = int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def neighbour() -> Iterator[Neighbour]:
    command = [sys.executable, "-c", NEIGHBOUR]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Neighbour(process)
        finally:
            process.kill()


def judged(
    worker: WorkerContext, scratch: dict[str, int], size: int = 1024, callbacks: JobCallbacks | None = None, **more: str
) -> Report:
    """Judges a comparison; `scratch` says how many GiB a call of each kernel takes, `size` how many elements it has."""
    names = {"reference": "Model", "kernel": "ModelNew"}
    sources = {role: SOURCE.format(name=name, scratch=scratch.get(role, 0), size=size) for role, name in names.items()}
    kernels = {role: {"kernel_type": "torch", "source_code": source} for role, source in (sources | more).items()}
    return run(Request.from_wire({**kernels, "num_trials": 5, "timeout": 120, "budget": "quick"}), worker, callbacks)


def taking(program: Neighbour, at: Stage, left_gib: int) -> JobCallbacks:
    """Has the other program take memory at that stage, which is after the job was planned."""

    def enter(stage: Stage) -> None:
        if stage is at and not program.took_gib:
            program.take_all_but(left_gib)

    return JobCallbacks(on_stage=enter)


@pytest.mark.parametrize("left_gib", [LEFT_GIB, 1])
@pytest.mark.parametrize("who", ["reference", "kernel"])
def test_a_kernel_without_memory_is_not_blamed_after_another_program_took_it(
    worker: WorkerContext, who: str, left_gib: int
) -> None:
    with neighbour() as program:
        # With next to nothing left, the referee's own libraries may fail first: another attempt too, and no verdict.
        with pytest.raises((InfrastructureFault, RuntimeError), match=r"grew by|out of memory") as ours:
            judged(worker, {who: SCRATCH_GIB}, callbacks=taking(program, Stage.VALIDATE, left_gib))
        print(f"the other program took {program.took_gib} GiB: {ours.value}")
        assert program.took_gib << 30 > worker.device.memory // 2
    after = judged(worker, {who: SCRATCH_GIB})
    assert after.outcome.status is Status.PASSED, after.outcome.message


def test_calls_of_a_gibibyte_pass_one_at_a_time_or_blame_nobody(worker: WorkerContext) -> None:
    with neighbour() as program:
        try:
            report = judged(worker, {}, 1 << 28, taking(program, Stage.TIME, 1))
        except InfrastructureFault as ours:
            print(f"the other program took {program.took_gib} GiB: {ours}")
        else:
            print(f"the other program took {program.took_gib} GiB: judged as {report.device.memory_arrangement}")
            assert report.outcome.status is Status.PASSED, report.outcome.message


def test_a_candidate_that_takes_the_card_is_blamed_beside_a_program_that_took_its_part_before(
    worker: WorkerContext,
) -> None:
    with neighbour() as program:
        program.take_all_but(40)
        report = judged(worker, {"reference": SCRATCH_GIB}, kernel=GREEDY)
        assert report.outcome.status is Status.OUT_OF_MEMORY, report.outcome


def test_who_takes_a_cards_memory_is_out_of_it(worker: WorkerContext) -> None:
    report = judged(worker, {"reference": 8}, kernel=GREEDY)
    assert report.outcome.status is Status.OUT_OF_MEMORY, report.outcome
    assert report.reference is not None and report.reference.status is Status.PASSED


def test_kernels_that_each_take_most_of_the_card_in_a_call_have_turns(worker: WorkerContext) -> None:
    """The memory that the first one leaves cached is no reason to refuse the second."""
    most = int(worker.device.memory * 0.6) >> 30
    report = judged(worker, {"reference": most, "kernel": most})
    assert report.outcome.status is Status.PASSED, report.outcome.message or report.reference
