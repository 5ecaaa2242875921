"""Which builds are wanted next: by the order of the jobs, for whoever serves their lines."""

from __future__ import annotations

import pytest
from redis import Redis

from domain.kernel import Kernel, KernelType
from domain.request import Request
from tasks.fleet.heartbeat import Heartbeat, workers
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import CPU, Device
from tasks.prebuild import plan
from tasks.prebuild.plan import BuildPlan, PlannedBuild
from tests.tasks.example_jobs import give_to

H200 = Device("GPU-1", 0, "NVIDIA H200", "h200", capability=(9, 0))
B200 = Device("GPU-2", 1, "NVIDIA B200", "b200", capability=(10, 0))


@pytest.fixture
def records(redis: Redis) -> JobStore:
    for name, device in (("gpu0@a", H200), ("gpu1@b", B200), ("cpu0@c", CPU)):
        Heartbeat(redis, name, device, 1, {}).beat()
    return JobStore(redis, ttl_s=600)


def named(kernel: Kernel, arch: str) -> str | None:
    return None if kernel.source_code == "left to others" else f"{kernel.source_code} {arch}"


@pytest.fixture
def ahead(redis: Redis, records: JobStore) -> BuildPlan:
    return BuildPlan(redis, records.queue, named)


def request(source: str, reference: str | None = None, **more: object) -> Request:
    second = Kernel(reference, KernelType.TORCH) if reference is not None else None
    return Request(Kernel(source, KernelType.TORCH), second, **more)  # type: ignore[arg-type]


def wanted(ahead: BuildPlan, redis: Redis, *archs: str) -> list[str]:
    return [one.key for one in ahead.builds(archs, workers(redis))]


def test_in_the_order_of_the_jobs_the_reference_first(redis: Redis, records: JobStore, ahead: BuildPlan) -> None:
    records.create("1", request("second", "its reference", priority=4))
    records.create("2", request("first", priority=9))
    assert wanted(ahead, redis, "sm_90") == ["first sm_90", "its reference sm_90", "second sm_90"]
    found = ahead.builds(["sm_90"], workers(redis))
    assert [(one.job_id, one.kernel, one.arch) for one in found] == [
        *(("2", 0, "sm_90"), ("1", 0, "sm_90"), ("1", 1, "sm_90"))
    ]


def test_a_line_is_for_who_serves_it(redis: Redis, records: JobStore, ahead: BuildPlan) -> None:
    records.create("any", request("any"))
    records.create("h200", request("h200", gpu="h200"))
    records.create("b200", request("b200", gpu="b200"))
    give_to(redis, records, "cpu0@c", "own", request("own"))
    assert wanted(ahead, redis, "sm_90") == ["any sm_90", "h200 sm_90"]
    assert sorted(wanted(ahead, redis, "sm_90", "sm_100")) == ["any sm_100", "any sm_90", "b200 sm_100", "h200 sm_90"]
    assert wanted(ahead, redis, "cpu") == ["any cpu", "own cpu"]
    assert wanted(ahead, redis) == []


def test_what_is_left_to_others_or_cannot_be_read_is_left_out(
    redis: Redis, records: JobStore, ahead: BuildPlan
) -> None:
    for job_id, source in (("1", "left to others"), ("2", "unreadable"), ("3", "gone"), ("4", "wanted")):
        records.create(job_id, request(source))
    redis.set("job:2:request", b'{"kernel": 5}')
    redis.delete("job:3:request")
    assert wanted(ahead, redis, "cpu") == ["wanted cpu"]


def test_a_build_is_gone_when_its_job_has_ended_and_nobody_else_wants_it(
    redis: Redis, records: JobStore, ahead: BuildPlan
) -> None:
    for job_id in ("1", "2", "3"):
        records.create(job_id, request("the same" if job_id != "3" else "another"))
    one = ahead.builds(["cpu"], workers(redis))[0]
    found = []
    for step in (
        lambda: None,
        lambda: records.cancel("1"),
        lambda: records.claim("cpu0@c"),
        lambda: records.cancel("2"),
    ):
        step()
        found.append(ahead.gone(one, ["cpu"], workers(redis)))
    assert (one.job_id, found) == ("1", [False, False, True, True])
    running = PlannedBuild("2", 0, "cpu", one.key)
    assert not ahead.gone(running, ["cpu"], workers(redis)), "who runs may wait for it"


def test_no_further_than_the_first_jobs(
    redis: Redis, records: JobStore, ahead: BuildPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MAX_JOBS_PER_QUEUE", 2)
    for number in range(4):
        records.create(str(number), request(str(number)))
    assert wanted(ahead, redis, "cpu") == ["0 cpu", "1 cpu"]
    assert records.claim("cpu0@c") is not None
    assert wanted(ahead, redis, "cpu") == ["1 cpu", "2 cpu"]
    assert set(ahead._keys) == {("1", "cpu"), ("2", "cpu")}, "of jobs that are gone nothing is kept"
