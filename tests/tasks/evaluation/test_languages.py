"""Vector addition, softmax and a product in each language, right and with a planted error, judged as jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from domain.result import Report, Status
from tasks.runtime.worker_context import WorkerContext
from tests.backends.languages.programs import PROGRAMS, TASKS, Program
from tests.backends.languages.sources import installed
from tests.own_worker import own_worker
from tests.tasks.judging import judged

INTERPRETED = [program for program in PROGRAMS if str(program) == "helion_vector_add"]
"""What a worker without a GPU runs in seconds. Helion's other programs take Triton's interpreter minutes."""
VERDICTS = pytest.mark.parametrize(
    ("wrong", "status"), [(False, Status.PASSED), (True, Status.WRONG_RESULT)], ids=["right", "wrong"]
)


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        yield opened


def judged_program(worker: WorkerContext, program: Program, *, wrong: bool) -> Report:
    installed(program.language)
    reference = TASKS[program.task].reference.to_wire()
    return judged(worker, program.kernel(wrong=wrong).to_wire(), reference, atol=None, rtol=None, timeout=120)


@VERDICTS
@pytest.mark.parametrize("program", INTERPRETED, ids=str)
def test_without_a_gpu_the_interpreter_runs_it(
    worker: WorkerContext, program: Program, wrong: bool, status: Status
) -> None:
    if worker.target.is_cuda:
        pytest.skip("there is a GPU")
    outcome = judged_program(worker, program, wrong=wrong).outcome
    assert outcome.status is status, outcome.message


@pytest.mark.gpu
@VERDICTS
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_card_judges_what_the_builder_compiled(
    worker: WorkerContext, program: Program, wrong: bool, status: Status
) -> None:
    outcome = judged_program(worker, program, wrong=wrong).outcome
    assert outcome.status is status, outcome.message
    assert outcome.build["dry_run"]["ended"] == "completed", outcome.build
