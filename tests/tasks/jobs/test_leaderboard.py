"""Who leads: each candidate once, on boards that stay short and are their key's own."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from domain.access import Key, Scope
from tasks.jobs.job_store import JobStore
from tasks.jobs.leaderboard import BOARDS, LENGTH, Board, Summary, boards
from tests.api import results
from tests.tasks.example_jobs import COMPARE


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, 60)


def judged(records: JobStore, ratio: float, candidate: str = "c", key: Key | None = None, **more: object) -> str:
    """A job that was completed with that speed-up."""
    job_id = f"{time.monotonic_ns()}"
    records.create(job_id, COMPARE, key=key)
    claim = records.claim("w")
    assert claim is not None
    body = results.passed(ratio, candidate=candidate * 64, **more)
    assert records.complete(job_id, claim.attempt, body)
    return job_id


def leading(board: Board) -> list[tuple[str, float | None]]:
    return [((leader.summary.candidate or "")[0], leader.summary.ratio) for leader in board.leaders]


def test_the_fastest_first_each_once_by_its_latest_measurement(redis: Redis, records: JobStore) -> None:
    judged(records, 3.0, "a")
    judged(records, 2.0, "b")
    latest = judged(records, 1.5, "a")
    (board,) = boards(redis, None, 5)
    assert leading(board) == [("b", 2.0), ("a", 1.5)]
    assert (board.reference, board.device, board.leaders[1].job_id) == ("d" * 64, "NVIDIA H200", latest)


def test_a_board_has_so_many_places(redis: Redis, records: JobStore) -> None:
    for index in range(LENGTH + 3):
        judged(records, 1.0 + index, chr(ord("a") + index))
    (board,) = boards(redis, None, 5)
    assert leading(board)[0] == ("m", 13.0) and len(board.leaders) == LENGTH
    assert redis.hlen(f"board::NVIDIA H200:{'d' * 64}:jobs") == LENGTH


def test_boards_are_so_many_and_expire(redis: Redis, records: JobStore) -> None:
    for index in range(BOARDS + 2):
        body = results.passed(2.0)
        body["ref_result"]["metadata"]["digest"] = f"reference{index}"
        records.create(f"job{index}", COMPARE)
        claim = records.claim("w")
        assert claim is not None and records.complete(f"job{index}", claim.attempt, body)
    found = boards(redis, None, 1000)
    assert len(found) == BOARDS and found[0].reference == f"reference{BOARDS + 1}"
    assert all(0 < redis.ttl(key) <= 60 for key in redis.keys("board*"))


def test_what_is_forgotten_leads_no_more(redis: Redis, records: JobStore) -> None:
    judged(records, 3.0, "a")
    records.cleanup(records.now() + 1)
    assert boards(redis, None, 5) == []
    judged(records, 2.0, "b")
    (board,) = boards(redis, None, 5)
    assert leading(board) == [("b", 2.0)]
    assert redis.zcard(f"board:NVIDIA H200:{'d' * 64}") == 0 and redis.zcard(f"board::NVIDIA H200:{'d' * 64}") == 1


def test_boards_are_their_keys_own(redis: Redis, records: JobStore) -> None:
    alice = Key("a1", "alice", frozenset(Scope), "", 0.0, 100, 100)
    judged(records, 2.0, "a", alice)
    judged(records, 3.0, "b")
    assert [leading(board) for board in boards(redis, "a1", 5)] == [[("a", 2.0)]]
    assert [leading(board) for board in boards(redis, None, 5)] == [[("b", 3.0)]]
    assert boards(redis, "b2", 5) == []


def test_what_belongs_on_no_board() -> None:
    known = results.passed(2.0)
    known["kernel_exec_result"]["inputs"] = {"inputs_replayed": True}
    bound = results.passed(2.0)
    bound["speedup"]["ci_high"] = None
    for body in (known, bound, results.passed(speedup=None), results.wrong(), results.evaluated()):
        assert Summary.from_body(body).board == ""
    assert Summary.from_body(results.passed(2.0)).board == f"NVIDIA H200:{'d' * 64}"
