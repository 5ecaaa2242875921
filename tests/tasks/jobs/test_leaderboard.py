"""Who leads: each candidate once, by what is certain of its speed-up, among the newest jobs of a key."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from domain.access import Key, Scope
from tasks.jobs.job_store import JobStore
from tasks.jobs.job_summary import Summary
from tasks.jobs.leaderboard import LENGTH, Board, Leader, boards
from tests.api import results
from tests.tasks.example_jobs import COMPARE


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, 60)


def judged(records: JobStore, ratio: float, candidate: str = "c", key: Key | None = None) -> str:
    """A job that was completed with that speed-up."""
    job_id = f"{time.monotonic_ns()}"
    records.create(job_id, COMPARE, key=key)
    claim = records.claim("w")
    assert claim is not None
    assert records.complete(job_id, claim.attempt, results.passed(ratio, candidate=candidate * 64))
    return job_id


def leading(board: Board) -> list[tuple[str, float | None]]:
    return [((leader.summary.candidate or "")[0], leader.summary.ratio) for leader in board.leaders]


def test_the_fastest_first_each_once_by_its_latest_measurement(records: JobStore) -> None:
    judged(records, 3.0, "a")
    judged(records, 2.0, "b")
    latest = judged(records, 1.5, "a")
    (board,) = boards(records.summaries(None, 100))
    assert leading(board) == [("b", 2.0), ("a", 1.5)]
    assert (board.reference, board.device, board.leaders[1].job_id) == ("d" * 64, "NVIDIA H200", latest)
    (newest,) = boards(records.summaries(None, 1))
    assert leading(newest) == [("a", 1.5)]


def test_it_is_the_lower_end_that_leads() -> None:
    certain, lucky = results.passed(2.0, candidate="a"), results.passed(3.0, candidate="b")
    lucky["speedup"]["ci_low"] = 1.1
    (board,) = boards(Leader(word, Summary.from_body(body)) for word, body in (("lucky", lucky), ("certain", certain)))
    assert [leader.job_id for leader in board.leaders] == ["certain", "lucky"]


def test_a_board_has_so_many_places_and_the_newest_board_is_first() -> None:
    bodies = [results.passed(1.0 + index, candidate=str(index)) for index in range(LENGTH + 3)]
    other = results.passed(2.0)
    other["ref_result"]["metadata"]["digest"] = "newer"
    newer, older = boards(Leader("job", Summary.from_body(body)) for body in (other, *bodies))
    assert newer.reference == "newer" and len(older.leaders) == LENGTH
    assert older.leaders[0].summary.candidate == str(LENGTH + 2)


def test_what_is_forgotten_leads_no_more(records: JobStore) -> None:
    judged(records, 3.0, "a")
    records.cleanup(records.now() + 1)
    assert boards(records.summaries(None, 100)) == []


def test_boards_are_their_keys_own(records: JobStore) -> None:
    alice = Key("a1", "alice", frozenset(Scope), "", 0.0, 100, 100)
    judged(records, 2.0, "a", alice)
    judged(records, 3.0, "b", Key("b2", "bob", frozenset(Scope), "", 0.0, 100, 100))
    records.create("open", COMPARE, key=alice)
    assert [leading(board) for board in boards(records.summaries("a1", 100))] == [[("a", 2.0)]]
    assert records.summaries("c3", 100) == []


def test_what_belongs_on_no_board() -> None:
    known = results.passed(2.0)
    known["kernel_exec_result"]["inputs"] = {"inputs_replayed": True}
    bound = results.passed(2.0)
    bound["speedup"]["ci_high"] = None
    for body in (known, bound, results.passed(speedup=None), results.wrong(), results.evaluated()):
        assert boards([Leader("job", Summary.from_body(body))]) == []
    assert len(boards([Leader("job", Summary.from_body(results.passed(2.0)))])) == 1


def test_an_id_that_was_used_before_gets_its_new_result(records: JobStore) -> None:
    for ratio in (2.0, 3.0):
        records.create("same", COMPARE)
        claim = records.claim("w")
        assert claim is not None and records.complete("same", claim.attempt, results.passed(ratio))
        for _ in range(2):
            assert [leader.summary.ratio for leader in records.summaries(None, 10)] == [ratio]
        assert records.cleanup(records.now() + 1) == 1
    assert records.summaries(None, 10) == []
