"""Products in low precision on the CPU: right ones pass, sums in bfloat16 do not."""

from __future__ import annotations

import pytest

from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.evaluation.product_sources import RIGHT, sources
from tests.tasks.judging import judged

DEFAULTS = {"atol": None, "rtol": None, "budget": "quick"}


@pytest.mark.parametrize("name", RIGHT)
def test_right_products_pass(worker: WorkerContext, name: str) -> None:
    reference, candidate = sources(name, 32, 48, 8192, right=True)
    outcome = judged(worker, candidate, reference, **DEFAULTS).outcome
    assert outcome.status is Status.PASSED, outcome.message


@pytest.mark.parametrize("name", ["float8", "int8"])
def test_sums_in_bfloat16_of_8192_terms_are_wrong(worker: WorkerContext, name: str) -> None:
    reference, candidate = sources(name, 32, 48, 8192, right=False)
    assert judged(worker, candidate, reference, **DEFAULTS).outcome.status is Status.WRONG_RESULT
