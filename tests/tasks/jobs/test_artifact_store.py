"""Texts beside a result: kept and counted with it, gone with it, and left out where there is no room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from domain.listing import Form, unpack
from domain.result import Outcome, Status
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.artifact_store import NO_ROOM, content, entries, fitting
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import submit
from tasks.node.device_info import CPU
from tests.tasks.artifacts import REPORT, TEXT, WHY_NO_REPORT, WHY_NOT, listed, profiled
from tests.tasks.example_jobs import COMPARE, EVALUATE, report, seen

WANTED = replace(COMPARE, artifacts=(Form.PTX, Form.SASS, Form.TTIR))


@pytest.fixture
def records(redis: Redis) -> JobStore:
    Heartbeat(redis, "w", CPU, 1, {}).beat()
    return JobStore(redis, ttl_s=60)


def ended(records: JobStore, job_id: str = "a") -> None:
    records.create(job_id, WANTED)
    claim = records.claim("w")
    assert claim is not None and claim.request == WANTED
    found = listed()
    assert records.complete(job_id, claim.attempt, found.body(job_id), found.texts)


def test_texts_are_kept_beside_the_result(records: JobStore, redis: Redis) -> None:
    ended(records)
    result = seen(records, "a").result
    assert result is not None
    found = entries(result)
    assert [(one.side, one.name) for one in found] == [
        ("candidate", "add.ptx"), ("candidate", "add.sass"), ("candidate", None), ("reference", "mul.ptx"),
    ]  # fmt: skip
    assert found[2].data == {"name": None, "format": "ttir", "kernel": None, "unavailable": WHY_NOT}
    assert found[0].data["bytes"] == len(TEXT.encode()) and found[0].data["truncated"] is False
    assert content(redis, "a", "candidate", "add.ptx") == TEXT.encode()
    assert content(redis, "a", "reference", "mul.ptx") == b"of the reference"
    assert content(redis, "a", "reference", "add.ptx") is None and content(redis, "b", "candidate", "add.ptx") is None
    assert TEXT not in str(result), "no part of what every look at the job reads"


def test_they_go_with_the_job(records: JobStore, redis: Redis) -> None:
    ended(records)
    assert records.cleanup(records.now() + 1) == 1
    assert redis.exists("job:a:artifacts") == 0 and records.stored_bytes() == 0


def test_they_count_in_what_records_take(records: JobStore, redis: Redis) -> None:
    ended(records)
    with_texts = records.stored_bytes()
    records.cleanup(records.now() + 1)
    records.create("b", WANTED)
    claim = records.claim("w")
    assert claim is not None and records.complete("b", claim.attempt, listed().body("b"))
    took = sum(len(name) + len(packed) for name, packed in listed().texts.items())
    assert with_texts - records.stored_bytes() == took > 100
    assert redis.exists("job:b:artifacts") == 0


def test_a_job_that_is_no_longer_held_leaves_none(records: JobStore, redis: Redis) -> None:
    records.create("a", WANTED)
    claim = records.claim("w")
    assert claim is not None
    assert not records.complete("a", claim.attempt + 1, listed().body("a"), listed().texts)
    assert redis.exists("job:a:artifacts") == 0


def test_where_there_is_no_room_the_result_says_so() -> None:
    found, size = listed(), sum(map(len, listed().texts.values()))
    assert fitting(found, lambda: size) is found
    without = fitting(found, lambda: size - 1)
    assert without.texts == {}
    data = [(one.side, one.data["format"], one.data["unavailable"]) for one in entries(without.body("a"))]
    assert data == [
        ("candidate", "ptx", NO_ROOM), ("candidate", "sass", NO_ROOM), ("candidate", "ttir", WHY_NOT),
        ("reference", "ptx", NO_ROOM),
    ]  # fmt: skip
    assert fitting(report(), lambda: 0).body("a")["kernel_exec_result"]["artifacts"] is None


def test_a_long_log_is_cut_where_there_is_no_room() -> None:
    """Many kernels with errors of a mebibyte would fill Redis far beyond RECORDS_MEMORY_MIB."""
    found = replace(report(Status.RUNTIME_ERROR), outcome=Outcome(Status.RUNTIME_ERROR, "torch", log="x" * (1 << 20)))
    assert fitting(found, lambda: 1 << 20) is found
    cut = fitting(found, lambda: 1000).outcome.log
    assert len(cut) < 10_000 and cut.startswith("x" * 4096) and NO_ROOM in cut


def test_a_profilers_report_is_kept_as_the_texts_are(records: JobStore, redis: Redis) -> None:
    records.create("a", COMPARE)
    claim = records.claim("w")
    found = profiled()
    assert claim is not None and records.complete("a", claim.attempt, found.body("a"), found.texts)
    ours, theirs = entries(seen(records, "a").result)
    assert (ours.side, ours.data) == (
        "candidate", {"name": "profile.ncu-rep", "format": "ncu-rep", "kernel": None, "bytes": len(REPORT)},
    )  # fmt: skip
    assert (theirs.side, theirs.name, theirs.data["unavailable"]) == ("reference", None, WHY_NO_REPORT)
    assert content(redis, "a", "candidate", "profile.ncu-rep") == REPORT
    without = fitting(found, lambda: -1)
    assert without.texts == {} and entries(without.body("a"))[0].data["unavailable"] == NO_ROOM


def test_an_answer_that_is_given_again_has_them_too(records: JobStore, redis: Redis) -> None:
    ended(records)
    again = replace(WANTED, reuse=True)
    job_id = submit(records, again).job_id
    view = seen(records, job_id)
    assert view.result is not None and view.result["reused_from"]["job_id"] == "a"
    assert content(redis, job_id, "candidate", "add.ptx") == TEXT.encode()
    records.cleanup(records.now() + 1)
    assert records.stored_bytes() == 0
    # What asked for other texts, or none, is other work.
    ended(records, "c")
    other = seen(records, submit(records, replace(again, artifacts=())).job_id)
    assert other.result is None


def test_texts_come_back_byte_for_byte() -> None:
    (packed, *_) = listed().texts.values()
    assert unpack(packed) == TEXT.encode()
    assert EVALUATE.artifacts == () and WANTED.from_wire(WANTED.to_wire()) == WANTED
