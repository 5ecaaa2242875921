"""The device lease: exclusive between processes, released by death, served in order, cancellable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from domain.budget import Budget
from domain.fault import InfrastructureFault, JobCancelled
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.request import Request
from domain.settings import settings
from tasks.node import device_lease as lease
from tasks.node.device_lease import device_lease, quiet, stays_free
from tasks.node.private_dir import UnsafeFolder
from tests.conftest import die_with_parent
from tests.tasks.example_jobs import until

HOLDER = """
import sys, time
from tasks.node.device_lease import device_lease
with device_lease("card", lambda: False):
    print("held", flush=True)
    time.sleep(600)
"""

CONTENDER = """
import os, random, sys
from tasks.node.device_lease import device_lease
draw = random.Random(sys.argv[2])
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for _ in range(40):
    with device_lease("card", lambda: False, int(sys.argv[2]) * draw.uniform(-0.1, 0.1)):
        os.write(log, b"(")
        os.write(log, b")")
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("LEASE_DIR", str(tmp_path))
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def start(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


def start_holder() -> subprocess.Popen[str]:
    holder = start(HOLDER)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.mark.parametrize("yields", [False, True])
def test_processes_exclude_each_other(state: Path, yields: bool) -> None:
    """Also where they go before each other at random."""
    log = state / "log"
    log.touch()
    kernel_runs = [start(CONTENDER, str(log), f"{number if yields else 0}") for number in range(4)]
    assert [kernel_run.wait(timeout=60) for kernel_run in kernel_runs] == [0] * 4
    assert log.read_text() == "()" * 160
    assert empty(state)
    for kernel_run in kernel_runs:
        end(kernel_run)


def test_a_killed_holder_holds_no_more(state: Path) -> None:
    holder = start_holder()
    got = Event()
    waiter = Thread(target=lambda: hold("card", got))
    waiter.start()
    until(partial(in_line, state, 2))
    assert not got.is_set()
    os.kill(holder.pid, signal.SIGKILL)
    assert got.wait(10)
    waiter.join()
    assert tickets(state, "card") == 0
    end(holder)


def test_a_stopped_holder_keeps_it(state: Path) -> None:
    holder = start_holder()
    os.kill(holder.pid, signal.SIGSTOP)
    tries = iter(range(20))
    with pytest.raises(JobCancelled), device_lease("card", lambda: next(tries, None) is None):
        pytest.fail("two held the device")
    end(holder)


def test_who_waits_can_be_cancelled_and_leaves_no_trace(state: Path) -> None:
    with device_lease("card", lambda: False):
        with pytest.raises(JobCancelled, match="card"), device_lease("card", lambda: True):
            pytest.fail("two held the device")
        assert tickets(state, "card") == 1
    assert tickets(state, "card") == 0


def test_who_waits_for_quiet_can_be_cancelled(state: Path) -> None:
    with quiet("card", lambda: False), pytest.raises(JobCancelled), quiet("card", lambda: True):
        pytest.fail("it was quiet for two")


def test_windows_go_before_whoever_waits_to_make_contexts(state: Path) -> None:
    order: list[str] = []

    def hold(name: str, queue_offset_s: float) -> None:
        with quiet("card", lambda: False, queue_offset_s):
            order.append(name)

    threads = [Thread(target=hold, args=args) for args in (("contexts", 20.0), ("windows", 0.0))]
    with quiet("card", lambda: False):
        for count, thread in enumerate(threads, start=2):
            thread.start()
            until(partial(in_line, state, count, "card-quiet"))
    for thread in threads:
        thread.join()
    assert order == ["windows", "contexts"]


def test_a_device_stays_free_until_somebody_wants_it(state: Path) -> None:
    assert stays_free("card", 0.0)
    with device_lease("another", lambda: False), quiet("another", lambda: False):
        assert stays_free("card", 0.01)
    with device_lease("card", lambda: False):
        assert not stays_free("card", 600)
    with quiet("card", lambda: False):
        assert not stays_free("card", 600), "contexts are made by another child, and one has to be there for a job"
    wanted = Event()

    def want() -> None:
        with device_lease("card", lambda: False):
            wanted.wait()

    thread = Thread(target=want)
    thread.start()
    try:
        assert not stays_free("card", 600)
    finally:
        wanted.set()
        thread.join()
    assert stays_free("card", 0.0)


def test_an_error_inside_releases_it(state: Path) -> None:
    with pytest.raises(ZeroDivisionError), device_lease("card", lambda: False):
        raise ZeroDivisionError
    with device_lease("card", lambda: True):
        pass


def test_it_is_given_in_the_order_of_arrival(state: Path) -> None:
    order: list[int] = []
    threads = []
    with device_lease("card", lambda: False):
        for number in range(6):
            threads.append(Thread(target=note, args=(order, number)))
            threads[-1].start()
            until(partial(in_line, state, number + 2))
    for thread in threads:
        thread.join()
    assert order == list(range(6))


def test_devices_do_not_share_a_line(state: Path) -> None:
    with device_lease("GPU-1", lambda: False), device_lease("GPU-2", lambda: True):
        assert (tickets(state, "GPU-1"), tickets(state, "GPU-2")) == (1, 1)


def test_a_strange_name_stays_inside_the_folder(state: Path) -> None:
    with device_lease("../../etc/passwd", lambda: False):
        (folder,) = state.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        (ticket,) = folder.iterdir()
        assert ticket.name.startswith("______etc_passwd.")


def test_nothing_stays_behind_but_the_folder(state: Path) -> None:
    holder = start_holder()
    with device_lease("another card", lambda: False):
        pass
    assert tickets(state, "card") == 1
    end(holder)
    with device_lease("another card", lambda: False):
        pass
    assert empty(state)
    assert left(state) == [f"kernel-eval-leases-{os.getuid()}"], "another user could take its name"


HOLDS_LOCK = """
import fcntl, os, sys, time
folder = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def locked(state: Path) -> Iterator[Path]:
    """The folder of the leases, locked by another process for good."""
    folder = state / f"kernel-eval-leases-{os.getuid()}"
    folder.mkdir(mode=0o700)
    holder = start(HOLDS_LOCK, str(folder))
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    yield folder
    end(holder)


def test_who_waits_for_a_locked_folder_can_be_cancelled(locked: Path) -> None:
    with pytest.raises(JobCancelled), device_lease("card", lambda: True):
        pytest.fail("it was locked")


def test_a_folder_that_stays_locked_is_a_fault_of_the_machine(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "MAX_LOCKED_S", 0.1)
    with pytest.raises(InfrastructureFault, match="has been locked"), device_lease("card", lambda: False):
        pytest.fail("it was locked")


def taken_by_another(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    os.chown(folder, 1000, 1000)


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to("elsewhere")


def a_file(folder: Path) -> None:
    folder.touch()


NOT_OURS = [
    pytest.param(taken_by_another, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")),
    *(open_to_all, a_link, a_file),
]


@pytest.mark.parametrize("made", NOT_OURS)
def test_a_folder_that_another_user_can_change_is_refused(made: Callable[[Path], None], state: Path) -> None:
    made(state / f"kernel-eval-leases-{os.getuid()}")
    with pytest.raises(UnsafeFolder, match="LEASE_DIR"), device_lease("card", lambda: False):
        pytest.fail("it cannot be trusted")
    with pytest.raises(UnsafeFolder, match="LEASE_DIR"):
        lease.create_folder()
    asked = subprocess.run(
        [sys.executable, "-c", "from tasks.worker.lifecycle import check_sandbox; check_sandbox()"],
        cwd=ROOT,
        env={**os.environ, "STATE_DIR": str(state / "state"), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 1 and "jobs cannot queue for a device" in asked.stderr, asked.stderr[-500:]


def test_what_its_group_may_write_is_taken_away(state: Path) -> None:
    folder = state / f"kernel-eval-leases-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o775)
    lease.create_folder()
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_ticket_that_is_a_link_is_not_followed(state: Path) -> None:
    with device_lease("card", lambda: False):
        (folder,) = state.iterdir()
        (state / "precious").touch()
        (folder / "card.00000000000000000001").symlink_to(state / "precious")
        with pytest.raises(OSError), device_lease("card", lambda: False):
            pytest.fail("two held the device")
        (folder / "card.00000000000000000001").unlink()
    assert (state / "precious").exists()


def test_services_with_state_of_their_own_share_the_device(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = start_holder()
    monkeypatch.setenv("STATE_DIR", str(state / "other"))
    settings.cache_clear()
    with pytest.raises(JobCancelled), device_lease("card", lambda: True):
        pytest.fail("two held the device")
    end(holder)


def hold(device: str, got: Event) -> None:
    with device_lease(device, lambda: False):
        got.set()


def note(order: list[int], number: int) -> None:
    with device_lease("card", lambda: False):
        order.append(number)


def in_line(state: Path, how_many: int, device: str = "card") -> bool:
    return tickets(state, device) == how_many


def tickets(state: Path, device: str) -> int:
    return len(list(state.glob(f"*/{device}.*")))


def empty(state: Path) -> bool:
    """Whether nobody is in a line, and nobody's ticket is left."""
    return not any((state / f"kernel-eval-leases-{os.getuid()}").iterdir())


def left(state: Path) -> list[str]:
    return [path.name for path in state.iterdir()]


def test_who_yields_goes_behind_those_that_come_soon_and_nobody_before_the_holder(state: Path) -> None:
    order: list[str] = []
    over = Event()

    def hold(name: str, queue_offset_s: float) -> None:
        with device_lease("card", lambda: False, queue_offset_s):
            order.append(name)
            over.wait()

    threads = []
    for name, queue_offset_s in (
        ("holder", 30.0),
        ("patient", 20.0),
        ("usual", 0.0),
        ("urgent", -20.0),
        ("later", 0.0),
    ):
        threads.append(Thread(target=hold, args=(name, queue_offset_s)))
        threads[-1].start()
        until(partial(in_line, state, len(threads)))
        until(lambda: order == ["holder"])
    over.set()
    for thread in threads:
        thread.join()
    assert order == ["holder", "urgent", "usual", "later", "patient"]


def test_who_yields_is_passed_by_for_that_time_and_no_longer(state: Path) -> None:
    order: list[str] = []
    over = Event()

    def hold(name: str, queue_offset_s: float) -> None:
        with device_lease("card", lambda: False, queue_offset_s):
            order.append(name)
            over.wait()

    threads = [
        Thread(target=hold, args=(name, queue_offset_s)) for name, queue_offset_s in (("holder", 0.0), ("patient", 0.2))
    ]
    for count, thread in enumerate(threads, start=1):
        thread.start()
        until(partial(in_line, state, count))
    came = time.monotonic()
    until(lambda: time.monotonic() > came + 0.25)
    threads.append(Thread(target=hold, args=("late", 0.0)))
    threads[-1].start()
    until(partial(in_line, state, 3))
    over.set()
    for thread in threads:
        thread.join()
    assert order == ["holder", "patient", "late"]


def test_the_usual_yields_nothing() -> None:
    usual = Request(kernel=Kernel("", KernelType.TORCH))
    assert usual.queue_offset_s == 0
    assert replace(usual, priority=6).queue_offset_s < replace(usual, budget=Budget.QUICK).queue_offset_s < 0
    assert 0 < replace(usual, budget=Budget.PRECISE).queue_offset_s < replace(usual, priority=4).queue_offset_s
