"""What a build-only worker makes of a queued job, and what two nodes of workers do with it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from domain.contract import IOContract
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Status
from domain.settings import settings
from tasks.builds.build_session import BuildSession
from tasks.builds.local_cache import BuildCache
from tasks.builds.shared_cache import BuildTarget
from tasks.evaluation.pipeline import run
from tasks.jobs.job_store import JobStore
from tasks.node.redis_client import text
from tasks.node.toolchain import missing_driver
from tasks.prebuild.job_builds import JobBuilder
from tasks.runtime.build_stage import Building
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.example_jobs import RELU, seen

WRONG = "print('looked at')\nimport torch\nundefined_name\n"
SLOW = f"import time\ntime.sleep(0.5)\n{RELU}"
BUILDER = "builder@node"
IO = IOContract.from_wire(
    {
        "args": [{"name": "y", "type": "tensor", "role": "output", "tensor_spec": {"shape": [64]}}],
        "launch": {"grid": [1], "block": [64]},
    }
)


def request(source: str) -> Request:
    return Request(kernel=Kernel(source, KernelType.TORCH), num_trials=1, target_precision=0.5, timeout=60)


@contextmanager
def state_folder(folder: Path) -> Iterator[None]:
    """The settings of a node with its own STATE_DIR, and the Redis of all."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STATE_DIR": str(folder), "SHARED_BUILDS_MIB": "64"}.items():
            patch.setenv(name, value)
        settings.cache_clear()
        yield
    settings.cache_clear()


@contextmanager
def node(folder: Path) -> Iterator[WorkerContext]:
    """The pool child of a node that judges."""
    with state_folder(folder):
        worker = WorkerContext()
    try:
        worker.start_zygote()
        yield worker
    finally:
        worker.close()


@pytest.fixture(scope="module")
def nodes(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorkerContext, WorkerContext]]:
    with ExitStack() as both:
        first, second = (both.enter_context(node(tmp_path_factory.mktemp(name))) for name in ("first", "second"))
        yield first, second


@pytest.fixture
def job_builder(redis: Redis, tmp_path: Path) -> Iterator[JobBuilder]:
    with state_folder(tmp_path / "builder"):
        builder = JobBuilder(redis, BUILDER)
        try:
            yield builder
        finally:
            builder.close()


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=600)


def build(worker: WorkerContext, source: str) -> KernelRun:
    """As a job of that node has it built; its fault is in the kernel run."""
    with worker.job_folder() as folder:
        kernel_run = KernelRun(
            "candidate", Kernel(source, KernelType.TORCH), worker.private_folder(folder / "candidate")
        )
        try:
            Building(worker, request(source), lambda: False).build(kernel_run)
        except KernelFault as fault:
            kernel_run.fault = fault
        finally:
            kernel_run.close()
        return kernel_run


def cache_of(worker: WorkerContext, source: str) -> str:
    return build(worker, source).build.origin["compile_cache"]


def judged(worker: WorkerContext, asked: Request) -> Outcome:
    return run(asked, worker).outcome


def announce(session: BuildSession, gpu_model: str, arch: str, toolchain: str | None = None) -> None:
    """As a worker with that device does."""
    assert session.shared is not None
    session.shared.announce(BuildTarget(gpu_model, arch, toolchain or session.toolchain))


def shared_keys(redis: Redis) -> set[str]:
    return {text(key) for key in redis.hkeys("builds:archives")}


def test_nodes_build_once_for_each_other(nodes: tuple[WorkerContext, WorkerContext], redis: Redis) -> None:
    first, second = nodes
    assert [cache_of(first, RELU), cache_of(second, RELU), cache_of(second, RELU)] == ["miss", "remote_hit", "hit"]
    assert build(second, RELU).build.origin["built_by"] == first.name
    here, there = build(first, WRONG), build(second, WRONG)
    assert there.build.origin["compile_cache"] == "remote_hit"
    assert here.fault is not None and there.fault is not None
    assert (there.fault.status, there.fault.message, there.fault.log, there.output) == (
        *(here.fault.status, here.fault.message, here.fault.log),
        here.output,
    )
    assert "looked at" in there.output


def test_a_hundred_identical_ones_are_built_once_a_node_at_most(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis
) -> None:
    results: list[str] = []

    def submit(worker: WorkerContext) -> None:
        results.extend(cache_of(worker, SLOW) for _ in range(50))

    threads = [threading.Thread(target=submit, args=[worker]) for worker in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    counts = Counter(results)
    assert counts["hit"] == 98 and counts["miss"] + counts["remote_hit"] == 2 and counts["miss"] >= 1, counts


def test_a_damaged_build_is_made_again_and_shared_again(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis
) -> None:
    first, second = nodes
    source = f"{RELU}# damaged\n"
    assert cache_of(first, source) == "miss"
    (key,) = redis.hkeys("builds:archives")
    redis.hset("builds:archives", key, b"damage")
    assert cache_of(second, source) == "miss"
    assert redis.hget("builds:archives", key) not in (None, b"damage")


def test_both_kernels_of_a_request_wait_no_longer_than_one(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience_s: list[float] = []
    build_lock = BuildCache.build_lock

    def noted(cache: BuildCache, key: str, cancelled: Callable[[], bool], patience: float) -> Any:
        patience_s.append(patience)
        return build_lock(cache, key, cancelled, patience)

    worker, sources = nodes[0], [f"{RELU}# kernel {number}\n" for number in range(2)]
    asked = Request(
        Kernel(sources[0], KernelType.TORCH), Kernel(sources[1], KernelType.TORCH), timeout=60, build_timeout=6
    )
    assert worker.builds is not None
    with worker.job_folder() as folder:
        kernel_runs = [
            KernelRun(role, kernel, worker.private_folder(folder / role)) for role, kernel in asked.kernels.items()
        ]
        with ExitStack() as others:
            for each in kernel_runs:
                key = worker.build_key(each.kernel)
                assert others.enter_context(worker.builds.build_lock(key, lambda: False, 0.0))
            monkeypatch.setattr(BuildCache, "build_lock", noted)
            began = time.monotonic()
            Building(worker, asked, lambda: False).build_all(kernel_runs)
            took_s = time.monotonic() - began
    first_s, second_s = patience_s
    assert second_s <= 0.0 < first_s <= 6.0, "the first has used it up"
    assert sum(each.build.seconds for each in kernel_runs) <= took_s - first_s, "waiting is no building"


def test_queued_jobs_are_built_and_judged_elsewhere(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis, records: JobStore, job_builder: JobBuilder
) -> None:
    judge = nodes[0]
    jobs = {name: request(f"{source}# {name}\n") for name, source in (("right", RELU), ("wrong", WRONG))}
    for name, asked in jobs.items():
        records.create(name, asked)
        assert job_builder.build(name) == 0, "no worker has asked for builds yet"
    assert cache_of(judge, f"{RELU}# announces what the worker needs builds for\n") == "miss"
    assert [job_builder.build(name) for name in jobs for _ in range(2)] == [1, 0, 1, 0]
    assert {seen(records, name).state.value for name in jobs} == {"queued"}, "a build-only worker changes no job"
    for name, status in (("right", Status.PASSED), ("wrong", Status.COMPILE_ERROR)):
        outcome = judged(judge, jobs[name])
        assert (outcome.status, outcome.build["compile_cache"]) == (status, "remote_hit")
        assert outcome.build["built_by"] == BUILDER


def test_nothing_is_built_for_a_job_that_ended_or_that_another_process_builds(
    redis: Redis, records: JobStore, job_builder: JobBuilder
) -> None:
    session = job_builder.session("cpu")
    announce(session, "cpu", "cpu")
    asked = request(RELU)
    records.create("job", asked)
    assert session.builds is not None
    with session.builds.build_lock(session.build_key(asked.kernel), lambda: False, 0.0):
        assert job_builder.build("job") == 0
    assert job_builder.build("unknown") == 0
    assert job_builder.build("job") == 1
    redis.delete("builds:archives")
    assert job_builder.build("job") == 1
    assert shared_keys(redis) == {session.build_key(asked.kernel)}, "from its own cache"
    redis.delete("builds:archives")
    records.cancel("job")
    assert job_builder.build("job") == 0


def test_it_builds_for_workers_that_may_run_the_job_and_have_its_compilers(
    redis: Redis, records: JobStore, job_builder: JobBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    session = job_builder.session("cpu")
    announce(session, "cpu", "cpu", "other compilers")
    kernel = Kernel(RELU, KernelType.TORCH)
    records.create("any", Request(kernel=kernel, timeout=60))
    records.create("h100", Request(kernel=kernel, timeout=60, gpu="h100"))
    assert job_builder.build("any") == 0
    assert "other compilers" in caplog.text and "run both from one image" in caplog.text
    announce(session, "h200", "sm_90")
    assert job_builder.build("h100") == 0
    announce(session, "cpu", "cpu")
    assert job_builder.build("any") == 2
    assert shared_keys(redis) == {job_builder.session(arch).build_key(kernel) for arch in ("cpu", "sm_90")}


@pytest.mark.slow
def test_without_a_driver_no_fault_is_shared_that_may_come_from_that(
    redis: Redis, records: JobStore, job_builder: JobBuilder
) -> None:
    """For a GPU that is not here: the workers there have its driver's library to link with."""
    right = "__global__ void ones(float* y) { y[threadIdx.x] = 1.0f; }"
    sources = {
        "cuda": Kernel(right, KernelType.CUDA, IO),
        "wrong cuda": Kernel(right.replace("1.0f", "undefined"), KernelType.CUDA, IO),
        "torch": Kernel(RELU, KernelType.TORCH),
        "wrong torch": Kernel(WRONG, KernelType.TORCH),
        "triton": Kernel(RELU, KernelType.TRITON),
    }
    announce(job_builder.session("cpu"), "h200", "sm_90")
    for name, kernel in sources.items():
        records.create(name, Request(kernel=kernel, timeout=60))
        job_builder.build(name)
    keys = {name: job_builder.session("sm_90").build_key(kernel) for name, kernel in sources.items()}
    expected = {"cuda", "wrong cuda", "torch"} | ({"triton"} if missing_driver() is None else set())
    assert {name for name, key in keys.items() if key in shared_keys(redis)} == expected


def test_a_candidates_build_for_a_gpu_is_that_for_its_reference(
    redis: Redis, records: JobStore, job_builder: JobBuilder
) -> None:
    """What its calls compile depends on the reference's inputs; so its key does, also where the reference is shared."""
    session = job_builder.session("sm_90")
    announce(session, "h200", "sm_90")
    reference = Kernel(RELU, KernelType.TORCH)
    sources = {name: f"# {name} of cpp_extension\n{RELU}" for name in ("one", "another")}
    jobs = {name: Request(Kernel(source, KernelType.TORCH), reference, timeout=60) for name, source in sources.items()}
    for name, asked in jobs.items():
        records.create(name, asked)
    assert [job_builder.build(name) for name in jobs] == [2, 1], "the reference is built once"
    for name, asked in jobs.items():
        with session.job_folder() as folder:
            kernel_runs = [
                KernelRun(role, kernel, session.private_folder(folder / role)) for role, kernel in asked.kernels.items()
            ]
            Building(session, asked, lambda: False).build_all(kernel_runs)
        assert [each.build.origin["compile_cache"] for each in kernel_runs] == ["hit", "hit"], name
        assert session.build_key(kernel_runs[-1].kernel) not in shared_keys(redis), "its key without a reference"
