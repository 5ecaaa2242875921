"""Build-only workers, real ones, and two nodes that judge: who builds what, and what it costs when a builder dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from redis import Redis

from domain.contract import IOContract
from domain.fault import JobCancelled, KernelFault
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.request import Request
from domain.result import Outcome, Status
from domain.settings import settings
from tasks.builds.shared_cache import NOTHING
from tasks.evaluation.pipeline import run
from tasks.fleet.prebuilder_registry import builders
from tasks.jobs.job_store import JobStore
from tasks.node.redis_client import text
from tasks.node.toolchain import missing_driver
from tasks.prebuild.plan import kernels_of
from tasks.prebuild.prebuilder import Builder
from tasks.runtime.build_stage import Building
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from tests.conftest import die_with_parent
from tests.tasks.example_jobs import RELU, seen, until

START_S = 60.0
WRONG = "print('looked at')\nimport torch\nundefined_name\n"
SLOW = f"import time\ntime.sleep(0.5)\n{RELU}"
IO = IOContract.from_wire(
    {
        "args": [{"name": "y", "type": "tensor", "role": "output", "tensor_spec": {"shape": [64]}}],
        "launch": {"grid": [1], "block": [64]},
    }
)
ENDLESS_THERE = f"import os, time\ntime.sleep(600 if '/builder/' in os.getcwd() else 0)\n{RELU}"
"""Its build hangs where a builder makes it."""


def request(source: str) -> Request:
    return Request(kernel=Kernel(source, KernelType.TORCH), num_trials=1, target_precision=0.5, timeout=60)


@contextmanager
def node(folder: Path) -> Iterator[WorkerContext]:
    """A node's pool child: with its own STATE_DIR, and the Redis of all."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STATE_DIR": str(folder), "SHARED_BUILDS_MIB": "64"}.items():
            patch.setenv(name, value)
        settings.cache_clear()
        worker = WorkerContext()
    settings.cache_clear()
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
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=600)


@contextmanager
def builder(redis_url: str, folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """For the CPU, on a node of its own."""
    state = folder / name / "builder"
    own = {"CELERY_BROKER_URL": redis_url, "STATE_DIR": str(state), "SHARED_BUILDS_MIB": "64", "BUILD_FOR": "cpu"}
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tasks.prebuild.prebuilder", name],
            cwd=ROOT, env={**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""}, stdout=log, stderr=log,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


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


def came(worker: WorkerContext, source: str) -> str:
    return build(worker, source).origin["compile_cache"]


def judged(worker: WorkerContext, asked: Request) -> Outcome:
    return run(asked, worker, lambda stage: None, lambda: False).outcome


def test_nodes_build_once_for_each_other(nodes: tuple[WorkerContext, WorkerContext], redis: Redis) -> None:
    first, second = nodes
    assert [came(first, RELU), came(second, RELU), came(second, RELU)] == ["miss", "remote_hit", "hit"]
    assert build(second, RELU).origin["built_by"] == first.name
    here, there = build(first, WRONG), build(second, WRONG)
    assert there.origin["compile_cache"] == "remote_hit"
    assert here.fault is not None and there.fault is not None
    assert (there.fault.status, there.fault.message, there.fault.log, there.output) == (
        *(here.fault.status, here.fault.message, here.fault.log),
        here.output,
    )
    assert "looked at" in there.output


def test_a_hundred_identical_ones_on_two_nodes_are_built_once(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis
) -> None:
    found: list[str] = []

    def submit(worker: WorkerContext) -> None:
        found.extend(came(worker, SLOW) for _ in range(50))

    threads = [threading.Thread(target=submit, args=[worker]) for worker in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(found) == {"miss": 1, "remote_hit": 1, "hit": 98}


def test_a_damaged_build_is_made_anew_and_shipped_again(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis
) -> None:
    first, second = nodes
    source = f"{RELU}# damaged\n"
    assert came(first, source) == "miss"
    (key,) = redis.hkeys("builds:archives")
    redis.hset("builds:archives", key, b"damage")
    assert came(second, source) == "miss"
    assert redis.hget("builds:archives", key) not in (None, b"damage")


def test_jobs_in_line_are_built_ahead_and_builders_that_end_cost_seconds(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis, redis_url: str, records: JobStore, tmp_path: Path
) -> None:
    judge, other = nodes
    ahead = {name: request(f"{source}# {name}\n") for name, source in (("right", RELU), ("wrong", WRONG))}
    for name, asked in ahead.items():
        records.create(name, asked)
    with builder(redis_url, tmp_path, "builder0") as killed, builder(redis_url, tmp_path, "builder1") as stopped:
        until(lambda: len([view for view in builders(redis) if view.builds_for]) == 2, START_S)
        until(lambda: sum(view.shared for view in builders(redis)) == 2, START_S)
        assert {(*view.builds_for, view.toolchain) for view in builders(redis)} == {("cpu", judge.toolchain)}
        assert sum(view.built for view in builders(redis)) == 2, "each build by one of them"
        assert {seen(records, name).state.value for name in ahead} == {"queued"}, "jobs are none of their business"
        for name, status in (("right", Status.PASSED), ("wrong", Status.COMPILE_ERROR)):
            found = judged(judge, ahead[name])
            assert (found.status, found.build["compile_cache"]) == (status, "remote_hit")
            assert found.build["built_by"] in {view.name for view in builders(redis)}
        # Both end in the middle of a build.
        stuck = [f"{ENDLESS_THERE}# {number}\n" for number in range(2)]
        for number, source in enumerate(stuck):
            records.create(f"stuck {number}", request(source))
        until(lambda: len([view for view in builders(redis) if view.building is not None]) == 2)
        below = psutil.Process(killed.pid).children(recursive=True)
        stopped.send_signal(signal.SIGTERM)
        os.kill(killed.pid, signal.SIGKILL)
        began = time.monotonic()
        assert [came(other, source) for source in stuck] == ["miss", "miss"]
        assert time.monotonic() - began < 15, "marks last for some seconds, then whoever waits builds"
        until(lambda: not [child for child in below if child.is_running() and child.status() != psutil.STATUS_ZOMBIE])
        assert stopped.wait(15) == 0, (tmp_path / "builder1.log").read_text()
    assert "builder1" not in {view.name.partition("@")[0] for view in builders(redis)}
    assert list((tmp_path / "builder1" / "builder" / "work").iterdir()) == []


def test_both_kernels_of_a_request_wait_no_longer_than_one(
    nodes: tuple[WorkerContext, WorkerContext], redis: Redis
) -> None:
    worker, sources = nodes[0], [f"{RELU}# kernel {number}\n" for number in range(2)]
    asked = Request(
        Kernel(sources[0], KernelType.TORCH), Kernel(sources[1], KernelType.TORCH), timeout=60, build_timeout=6
    )
    with worker.job_folder() as folder:
        kernel_runs = [
            KernelRun(str(number), kernel, worker.private_folder(folder / str(number)))
            for number, kernel in enumerate(kernels_of(asked))
        ]
        for each in kernel_runs:
            redis.set(f"builds:mark:{worker.build_key(each.kernel)}", "somebody for ever")
        began = time.monotonic()
        Building(worker, asked, lambda: False).build_all(kernel_runs)
    assert 6.0 < time.monotonic() - began < 12.0
    assert max(each.build_s for each in kernel_runs) < 6.0, "waiting is no building"


@pytest.fixture
def own(redis: Redis, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """A builder for the CPU, in this process."""
    for name, value in {"STATE_DIR": str(tmp_path), "SHARED_BUILDS_MIB": "64", "BUILD_FOR": "cpu"}.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    made = Builder(redis, "builder0@here", {})
    made._build_session("cpu").start_zygote()
    yield made
    made._own.close()
    settings.cache_clear()


def test_what_nobody_wants_any_more_is_given_up(own: Builder, redis: Redis, records: JobStore) -> None:
    endless = request(f"import time\ntime.sleep(600)\n{RELU}")
    for job_id in ("first", "same"):
        records.create(job_id, endless)
    with ThreadPoolExecutor() as threads:
        looking = threads.submit(own.make_next)
        until(lambda: list(redis.scan_iter("builds:mark:*")))
        for job_id in ("first", "same"):
            assert not looking.done()
            records.cancel(job_id)
        assert isinstance(looking.exception(20), JobCancelled)
    assert list(redis.scan_iter("builds:mark:*")) == []
    assert not own._recent, "who sends it again finds it made"


def test_a_turn_that_it_did_not_get_is_none(own: Builder, redis: Redis, records: JobStore) -> None:
    asked = request(RELU)
    records.create("job", asked)
    (one,) = own._plan.builds(["cpu"], [])
    redis.set(f"builds:mark:{one.key}", "somebody else", ex=60)
    assert not own._make(one)
    redis.delete(f"builds:mark:{one.key}")
    own._shipped._paused_until = time.monotonic() + 600
    assert not own.make_next(), "after a failure of Redis"
    own._shipped._paused_until = 0.0
    assert own.make_next()
    assert redis.hexists("builds:archives", one.key)


@pytest.mark.slow
def test_without_a_driver_nothing_is_said_about_what_may_want_one(
    redis: Redis, redis_url: str, records: JobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a GPU that is not here: who judges there has its driver's library to link with."""
    right = "__global__ void ones(float* y) { y[threadIdx.x] = 1.0f; }"
    sources = {
        "cuda": Kernel(right, KernelType.CUDA, IO),
        "wrong cuda": Kernel(right.replace("1.0f", "undefined"), KernelType.CUDA, IO),
        "torch": Kernel(RELU, KernelType.TORCH),
        "wrong torch": Kernel(WRONG, KernelType.TORCH),
        "triton": Kernel(RELU, KernelType.TRITON),
    }
    for name, kernel in sources.items():
        records.create(name, Request(kernel=kernel, timeout=60))
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    monkeypatch.setenv("SHARED_BUILDS_MIB", "64")
    monkeypatch.setenv("BUILD_FOR", "sm_90")
    settings.cache_clear()
    made = Builder(redis, "builder0@here", {})
    try:
        worker = made._build_session("sm_90")
        keys = {name: worker.build_key(kernel) for name, kernel in sources.items()}
        while made.make_next():
            pass
    finally:
        made._own.close()
        settings.cache_clear()
    shipped = {text(key) for key in redis.hkeys("builds:archives")}
    expected = {"cuda", "wrong cuda", "torch"} | ({"triton"} if missing_driver() is None else set())
    assert {name for name, key in keys.items() if key in shipped} == expected
    assert redis.get(f"builds:mark:{keys['wrong torch']}") == NOTHING.encode(), "nobody waits for it"
