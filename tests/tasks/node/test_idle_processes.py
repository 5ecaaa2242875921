"""A process on offer has one taker: its owner, who goes on with it, or a job that ends it."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from typing import cast

import pytest

from domain.settings import settings
from sandbox.isolation import process_tree
from sandbox.supervisor.session import Session
from tasks.node.idle_processes import IdleProcesses
from tasks.runtime.runner_pool import RunnerPool
from tests.conftest import die_with_parent


@pytest.fixture(autouse=True)
def lease_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("LEASE_DIR", str(tmp_path))
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


class Process:
    """A session of a process that only waits, as far as a pool asks for one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=die_with_parent
        )
        self.runner = self
        self.pid = self._process.pid
        self.cancelled: object = None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def set_deadline(self, deadline: float) -> None: ...

    def open_device(self, *, one_queue: bool) -> None: ...

    def warm_libraries(self) -> None: ...

    def wait_until_open(self) -> None: ...

    def launch_ms(self) -> float:
        return 1.7e-3

    def stop(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made: list[Process] = [Process() for _ in range(3)]
    yield made
    for one in made:
        one.close()


def test_a_job_ends_what_is_on_offer_and_nothing_else(processes: list[Process]) -> None:
    idle, elsewhere = IdleProcesses("GPU-1"), IdleProcesses("GPU-2")
    idle.offer(processes[0].pid)
    idle.offer(processes[1].pid)
    elsewhere.offer(processes[2].pid)
    assert idle.claim(processes[1].pid)
    assert idle.end_all() == 1
    assert [one.alive for one in processes] == [False, True, True]
    assert not idle.claim(processes[0].pid)
    assert idle.end_all() == 0


def test_of_two_takers_one_gets_it(processes: list[Process]) -> None:
    for one in processes:
        for _ in range(20):
            IdleProcesses("GPU-1").offer(one.pid)
            together = Barrier(4)

            def claim(pid: int = one.pid, together: Barrier = together) -> bool:
                together.wait()
                return IdleProcesses("GPU-1").claim(pid)

            with ThreadPoolExecutor(4) as pool:
                assert sum(pool.map(lambda _: claim(), range(4))) == 1


def test_a_process_that_has_the_number_of_one_that_ended_lives_on(processes: list[Process], lease_dir: Path) -> None:
    idle = IdleProcesses("GPU-1")
    idle.offer(processes[0].pid)
    (offer,) = lease_dir.glob("*/GPU-1-idle/*")
    namespace, _, started = offer.name.split("-")
    offer.rename(offer.with_name(f"{namespace}-{processes[1].pid}-{int(started) - 1}"))
    assert idle.end_all() == 0
    assert processes[1].alive
    assert not list(lease_dir.glob("*/GPU-1-idle/*"))


def test_a_process_of_another_pid_namespace_is_left_alone(processes: list[Process], lease_dir: Path) -> None:
    idle = IdleProcesses("GPU-1")
    idle.offer(processes[0].pid)
    (offer,) = lease_dir.glob("*/GPU-1-idle/*")
    namespace, rest = offer.name.split("-", 1)
    offer.rename(offer.with_name(f"{int(namespace) + 1}-{rest}"))
    assert idle.end_all() == 0
    assert processes[0].alive


def test_a_process_that_has_ended_is_not_waited_for(processes: list[Process]) -> None:
    idle = IdleProcesses("GPU-1")
    idle.offer(processes[0].pid)
    processes[0].close()
    assert process_tree.status_of(processes[0].pid) is None
    assert idle.end_all() == 0
    idle.offer(processes[0].pid)
    assert not idle.claim(processes[0].pid)


def pool_of(idle: IdleProcesses, folder: Path) -> RunnerPool:
    def fork(_: Path, __: object) -> Session:
        return cast(Session, Process())

    return RunnerPool(fork, lambda: folder / "none", lambda _: nullcontext(), 3, 8, idle=idle)


def test_a_pool_hands_out_no_runner_that_another_worker_ended(tmp_path: Path) -> None:
    """And no job ends a runner that was handed out."""
    idle = IdleProcesses("GPU-1")
    pool = pool_of(idle, tmp_path)
    first = pool.take([tmp_path / "a", tmp_path / "b"], None, lambda: False)
    assert pool.ready == 3
    assert idle.end_all() == 3
    second = pool.take([tmp_path / "a", tmp_path / "b"], None, lambda: False)
    assert all(one.session.runner.alive for one in [*first, *second])
    pool.close()
    assert idle.end_all() == 0
    for one in [*first, *second]:
        one.session.close()


def test_a_pool_replaces_what_was_ended_between_jobs(tmp_path: Path) -> None:
    idle = IdleProcesses("GPU-1")
    pool = pool_of(idle, tmp_path)
    taken = pool.take([tmp_path / "a"], None, lambda: False)
    idle.end_all()
    pool.refill()
    assert pool.ready > 0
    assert idle.end_all() == pool.ready
    pool.close()
    for one in taken:
        one.session.close()
