"""Which candidates may share a process, and the time of a job that may be judged twice for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from domain.kernel import KernelType
from domain.request import Request
from domain.settings import settings
from tasks.evaluation.celery_task import allowance
from tasks.runtime.runner_keys import candidate_key
from tasks.runtime.stream_isolation import Queues


@pytest.fixture(autouse=True)
def reuses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CONTEXT_REUSES", "3")
    settings.cache_clear()
    yield
    settings.cache_clear()


def request(kernel_type: str = "cuda", source: str = "one", **more: object) -> Request:
    kernel = {"source_code": source, "kernel_type": kernel_type}
    return Request.from_wire({"kernel": kernel, "num_trials": 4, "timeout": 30, "budget": "quick"} | more)


def test_candidates_without_host_code_share_a_process() -> None:
    assert candidate_key(request(), Queues()) == candidate_key(request(source="two"), Queues()) is not None
    with_host_code = [each for each in KernelType if each is not KernelType.CUDA]
    assert [candidate_key(request(each), Queues()) for each in with_host_code] == [None] * len(with_host_code)
    launches_itself = {"source_code": "one", "kernel_type": "cuda", "metadata": {"entry_point": "solve"}}
    assert candidate_key(request(kernel=launches_itself), Queues()) is None


def test_another_key_and_unusual_jobs_share_none() -> None:
    plain = request()
    assert candidate_key(replace(plain, owner="ann"), Queues()) not in (None, candidate_key(plain, Queues()))
    alone = [request(profile=True), request(replay_seed="1f"), request(budget="precise"), request(determinism=True)]
    assert [candidate_key(each, Queues()) for each in alone] == [None] * 4
    unusual = [Queues(one_call=True), Queues(final=True), Queues(frozenset({"candidate"}))]
    assert [candidate_key(plain, queues) for queues in unusual] == [None] * 3


def test_a_job_that_may_be_judged_again_has_time_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (allowance(request()), allowance(request("triton"))) == (120, 90)
    launches_itself = {"source_code": "one", "kernel_type": "cuda", "metadata": {"entry_point": "solve"}}
    assert allowance(request(kernel=launches_itself)) == 90
    monkeypatch.setenv("CONTEXT_REUSES", "0")
    settings.cache_clear()
    assert allowance(request()) == 90
    monkeypatch.setenv("WARM_REFERENCE_SECONDS", "30")
    settings.cache_clear()
    assert allowance(request(reference=launches_itself)) == 120
