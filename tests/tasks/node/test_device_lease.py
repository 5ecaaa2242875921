"""The device lease: exclusive between processes, released by death, served in order, cancellable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from domain.fault import JobCancelled
from domain.paths import ROOT
from domain.settings import settings
from tasks.node import device_lease as lease
from tasks.node.device_lease import device_lease, quiet, stays_free
from tasks.node.private_dir import UnsafeFolder
from tests.conftest import die_with_parent
from tests.tasks.example_jobs import until
from tests.tasks.node.lease_queue import in_line

HOLDER = """
import sys, time
from tasks.node.device_lease import device_lease
with device_lease("card", lambda: False):
    print("held", flush=True)
    time.sleep(600)
"""

CONTENDER = """
import os, random, sys
from tasks.node.device_lease import quiet
draw = random.Random(sys.argv[2])
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for _ in range(40):
    with quiet("card", lambda: False, int(sys.argv[2]) * draw.uniform(0, 0.1)):
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
    assert in_line("card-quiet") == 0
    for kernel_run in kernel_runs:
        end(kernel_run)


def test_a_killed_holder_holds_no_more(state: Path) -> None:
    holder = start_holder()
    got = Event()
    waiter = Thread(target=lambda: hold("card", got))
    waiter.start()
    until(lambda: in_line("card") == 2)
    assert not got.is_set()
    os.kill(holder.pid, signal.SIGKILL)
    assert got.wait(10)
    waiter.join()
    assert in_line("card") == 0
    end(holder)


def test_a_killed_waiter_holds_nobody_up(state: Path) -> None:
    got = Event()
    with device_lease("card", lambda: False):
        killed = start(HOLDER)
        until(lambda: in_line("card") == 2)
        waiter = Thread(target=lambda: hold("card", got))
        waiter.start()
        until(lambda: in_line("card") == 3)
        end(killed)
        assert in_line("card") == 2 and not got.is_set()
    assert got.wait(10)
    waiter.join()


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
        assert in_line("card") == 1
    assert in_line("card") == 0


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
            until(partial(has_in_line, "card-quiet", count))
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
            until(partial(has_in_line, "card", number + 2))
    for thread in threads:
        thread.join()
    assert order == list(range(6))


def test_devices_do_not_share_a_line(state: Path) -> None:
    with device_lease("GPU-1", lambda: False), device_lease("GPU-2", lambda: True):
        assert (in_line("GPU-1"), in_line("GPU-2")) == (1, 1)


def test_a_strange_name_stays_inside_the_folder(state: Path) -> None:
    with device_lease("../../etc/passwd", lambda: False):
        (folder,) = state.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        (file,) = folder.iterdir()
        assert file.name == "______etc_passwd" and file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_used_is_young(state: Path) -> None:
    """A service that removes old files from a folder for temporary ones would give the device to a second holder."""
    with device_lease("card", lambda: False):
        (file,) = state.glob("*/card")
    os.utime(file, (0, 0))
    with device_lease("card", lambda: False):
        assert file.stat().st_mtime > 0


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


def test_a_file_that_is_a_link_is_not_followed(state: Path) -> None:
    lease.create_folder()
    (folder,) = state.iterdir()
    (folder / "card").symlink_to(state / "precious")
    with pytest.raises(OSError), device_lease("card", lambda: False):
        pytest.fail("the lock is elsewhere")
    assert not (state / "precious").exists()


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


def has_in_line(queue: str, count: int) -> bool:
    return in_line(queue) == count
