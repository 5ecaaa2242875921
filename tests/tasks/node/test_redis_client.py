"""A Redis that takes no writes is waited for as one that is away; real servers that refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from domain.job import State
from domain.settings import settings
from tasks.jobs.job_store import JobStore
from tasks.node.redis_client import WritesRefused, connect, require_writes
from tests.conftest import free_port, start_redis
from tests.tasks.example_jobs import EVALUATE, acting_once, report, seen, until
from tests.tasks.node.refusing_redis import full_memory, refused


@pytest.fixture
def own_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """A client of a server that is the settings' too, and that a test may spoil."""
    port = free_port()
    server = start_redis(tmp_path, port, "--appendonly", "no", "--enable-protected-configs", "yes")
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{port}/0")
    settings.cache_clear()
    with Redis(port=port) as redis:
        yield redis
    settings.cache_clear()
    server.kill()
    server.wait()


def fill_memory(redis: Redis, folder: Path) -> None:
    redis.config_set("maxmemory", 1)


def lose_disk(redis: Redis, folder: Path) -> None:
    """Snapshots fail, as on a full disk; then Redis takes no writes by default."""
    gone = folder / "gone"
    gone.mkdir()
    redis.config_set("dir", str(gone))
    gone.rmdir()
    redis.config_set("save", "3600 1")
    redis.bgsave()
    until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err")


def become_replica(redis: Redis, folder: Path) -> None:
    redis.replicaof("127.0.0.1", str(free_port()))


def mend(redis: Redis) -> None:
    redis.config_set("maxmemory", 0)
    redis.config_set("save", "")
    redis.replicaof("NO", "ONE")


REFUSALS = [(fill_memory, "OOM"), (lose_disk, "MISCONF"), (become_replica, "READONLY")]


@pytest.mark.parametrize(("spoil", "code"), REFUSALS)
def test_a_result_is_not_lost_while_redis_takes_no_writes(own_redis: Redis, tmp_path: Path, spoil, code: str) -> None:  # type: ignore[no-untyped-def]
    JobStore(own_redis, 60).create("a", EVALUATE)
    patient, prompt = JobStore(connect(patient=True), 60), JobStore(connect(), 60)
    claim = patient.claim("w")
    assert claim is not None
    spoil(own_redis, tmp_path)
    with pytest.raises(WritesRefused, match="Redis takes no writes"):
        prompt.complete("a", claim.attempt, report().body("a"), {})
    assert seen(prompt, "a").state is State.BUILDING
    before = refused(own_redis, code)
    with acting_once(lambda: refused(own_redis, code) > before + 2, lambda: mend(own_redis)):
        assert patient.complete("a", claim.attempt, report().body("a"), {})
    assert (seen(prompt, "a").state, seen(prompt, "a").attempt) == (State.COMPLETED, 1)


@pytest.mark.parametrize(("spoil", "code"), REFUSALS)
def test_a_pipeline_is_refused_alike(own_redis: Redis, tmp_path: Path, spoil, code: str) -> None:  # type: ignore[no-untyped-def]
    redis = connect()
    spoil(own_redis, tmp_path)
    with pytest.raises(WritesRefused), redis.pipeline(transaction=False) as pipe:
        pipe.set("a", 1)
        pipe.sadd("b", 1)
        pipe.execute()
    mend(own_redis)
    require_writes(redis)


def test_other_errors_of_a_command_stay_what_they_are(redis: Redis) -> None:
    client = connect(patient=True)
    client.set("text", "MISCONF OOM READONLY ")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        client.lpush("text", "MISCONF ")
    with pytest.raises(NoScriptError):
        client.evalsha("0" * 40, 0)


def test_an_optional_client_does_not_wait_for_it(redis: Redis) -> None:
    with full_memory(redis), pytest.raises(WritesRefused):
        require_writes(connect(waits=False))
    require_writes(connect(waits=False))
