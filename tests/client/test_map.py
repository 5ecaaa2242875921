"""Thousands of submissions: none lost, so many at a time and no more, in whatever order they are done."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from kernel_eval_client import AsyncClient, Client, Kernel, Retry, Submission, errors, torch
from kernel_eval_client.async_client import AHEAD
from tests.client.failing import BROKEN, Reply, Seen, Told, listening, problem, result

MANY = 200
AT_ONCE = 16
QUICK = Retry(patience_s=20.0, first_pause_s=0.005, max_pause_s=0.01)


class Crowd:
    """Answers each source with its own text as job id, some only after failures; counts who is being served."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now, self.most = 0, 0
        self.random = random.Random(7)
        self.failed: dict[str, int] = {}

    def __call__(self, request: Seen) -> Reply:
        source = json.loads(request.body)["kernel"]["source_code"]
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            times, seconds = self.failed.get(source, 0), self.random.uniform(0, 0.004)
            self.failed[source] = times + 1
        time.sleep(seconds)  # Answers overtake each other.
        with self.lock:
            self.now -= 1
        number = int(source)
        if number % 10 == 3:
            return problem(400, "invalid-request")
        if number % 7 == 0 and times == 0:
            return BROKEN if number % 2 else problem(503, "queue-full", Retry_After="0")
        return Reply(200, result(source))


def sources(pulled: list[int], many: int = MANY) -> Iterator[Submission]:
    for number in range(many):
        pulled.append(number)
        yield Submission(torch(f"{number}"), label=f"{number}")


def test_every_submission_comes_back_once() -> None:
    crowd, pulled, ahead, indices = Crowd(), [], 0, []  # type: ignore[var-annotated]
    with listening(Told(answer=crowd)) as told, Client(told.url, retry=QUICK) as client:
        for finished in client.map(sources(pulled), concurrency=AT_ONCE):
            indices.append(finished.index)
            ahead = max(ahead, len(pulled) - len(indices))
            assert finished.submission.label == f"{finished.index}"
            if finished.index % 10 == 3:
                assert isinstance(finished.error, errors.CallerError) and finished.result is None
            else:
                assert finished.result is not None and finished.result.job_id == f"{finished.index}"
    assert sorted(indices) == list(range(MANY))
    assert indices != sorted(indices), "as they are done, not as they came"
    assert 2 <= crowd.most <= AT_ONCE
    assert ahead <= AT_ONCE, "submissions are made when there is room, not before"


def test_asynchronously_too() -> None:
    async def all_of(url: str) -> list[int]:
        async with AsyncClient(url, retry=QUICK) as client:
            return [finished.index async for finished in client.map(sources([], 40), concurrency=AT_ONCE)]

    with listening(Told(answer=Crowd())) as told:
        assert sorted(asyncio.run(all_of(told.url))) == list(range(40))


def test_in_the_order_they_came_where_that_is_asked_for() -> None:
    with listening(Told(answer=Crowd())) as told, Client(told.url, retry=QUICK) as client:
        found = [each.index for each in client.map(sources([], 80), concurrency=8, ordered=True)]
    assert found == list(range(80))


def test_one_that_is_waited_for_holds_up_no_more_than_so_many() -> None:
    """The first is answered when everything else that may be done ahead of it is."""
    pulled: list[int] = []
    ahead = threading.Event()

    def answer(request: Seen) -> Reply:
        source = json.loads(request.body)["kernel"]["source_code"]
        if source == "0":
            ahead.wait(30)
        elif len(pulled) >= 2 * AHEAD + 1:
            ahead.set()
        return Reply(200, result(source))

    with listening(Told(answer=answer)) as told, Client(told.url, retry=QUICK) as client:
        first = next(iter(client.map(sources(pulled), concurrency=2, ordered=True)))
    assert first.index == 0 and len(pulled) <= 2 * AHEAD + 2


def test_what_is_no_submission_is_an_error_of_its_own() -> None:
    given: list[Any] = ["def kernel_fn(x): ...", Submission("source"), 7, {"num_trials": 3}, torch("1"), None]  # type: ignore[arg-type]
    given.append(Submission(Kernel("1", "torch", io="contract")))  # type: ignore[arg-type]
    with listening(Told(answer=Crowd())) as told, Client(told.url, retry=QUICK) as client:
        found = list(client.map(given, ordered=True))
    assert [each.index for each in found] == list(range(7))
    assert [each.index for each in found if each.error is None] == [4]
    assert found[0].submission.kernel == given[0] and "not str" in str(found[0].error)
    assert all(isinstance(each.error, errors.CallerError) for each in found if each.index != 4)


def test_who_stops_early_leaves_no_thread() -> None:
    pulled: list[int] = []
    with listening(Told(answer=Crowd())) as told, Client(told.url, retry=QUICK) as client:
        for _ in client.map(sources(pulled), concurrency=4):
            break
    assert len(pulled) <= 5
    assert not [thread for thread in threading.enumerate() if thread.name == "kernel-eval"]


def test_who_stops_early_is_told_of_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()

    def answer(request: Seen) -> Reply:
        source = json.loads(request.body)["kernel"]["source_code"]
        if source != "0":
            over.wait(30)
        return Reply(200, result(source))

    with listening(Told(answer=answer)) as told, Client(told.url, retry=QUICK) as client:
        for _ in client.map(sources([]), concurrency=4):
            break
        over.set()
    assert not caplog.records


def test_none_at_a_time_is_refused() -> None:
    with (
        listening(Told(answer=Crowd())) as told,
        Client(told.url) as client,
        pytest.raises(ValueError, match="or more"),
    ):
        next(client.map(sources([]), concurrency=0))


def test_a_generator_that_raises_is_heard() -> None:
    def broken() -> Iterator[Submission]:
        yield Submission(torch("1"))
        raise KeyError("mine")

    with (
        listening(Told(answer=Crowd())) as told,
        Client(told.url, retry=QUICK) as client,
        pytest.raises(KeyError, match="mine"),
    ):
        list(client.map(broken()))


def test_inside_a_running_loop() -> None:
    async def notebook(url: str) -> int:
        with Client(url, retry=QUICK) as client:
            return len(list(client.map(sources([], 8))))

    with listening(Told(answer=Crowd())) as told:
        assert asyncio.run(notebook(told.url)) == 8


@pytest.mark.slow
def test_ten_thousand_take_no_more_memory_than_two_thousand() -> None:
    measured = {}
    process = psutil.Process()
    with listening(Told(answer=Crowd())) as told, Client(told.url, retry=QUICK) as client:
        for count, _ in enumerate(client.map(sources([], 10_000), concurrency=AT_ONCE), start=1):
            if count in (2_000, 10_000):
                measured[count] = process.memory_info().rss
    assert count == 10_000
    assert measured[10_000] - measured[2_000] < 16 << 20
