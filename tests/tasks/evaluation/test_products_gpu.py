"""Large products in low precision on a card: right ones pass in ten of ten jobs, sums in bfloat16 in none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.evaluation.product_sources import RIGHT, sources
from tests.tasks.judging import judged

pytestmark = pytest.mark.gpu

JOBS = 10
DEFAULTS = {"atol": None, "rtol": None, "budget": "quick", "timeout": 120}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


@pytest.mark.parametrize("name", RIGHT)
def test_right_products_pass_in_every_job(worker: WorkerContext, name: str) -> None:
    reference, candidate = sources(name, 16384, 8192, 4096, right=True)
    for _ in range(JOBS):
        outcome = judged(worker, candidate, reference, **DEFAULTS).outcome
        assert outcome.status is Status.PASSED, (outcome.message, outcome.comparison)


@pytest.mark.parametrize("name", ["float8", "int8"])
def test_sums_in_bfloat16_of_8192_terms_are_wrong_in_every_job(worker: WorkerContext, name: str) -> None:
    reference, candidate = sources(name, 4096, 4096, 8192, right=False)
    for _ in range(JOBS):
        assert judged(worker, candidate, reference, **DEFAULTS).outcome.status is Status.WRONG_RESULT
