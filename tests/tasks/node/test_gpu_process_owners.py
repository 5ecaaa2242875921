"""Whose a process on a card is: known by what started it, also when it has ended. The driver's lists are made up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiling.gpu.monitor import CardMonitor, CardProcess, CardSample
from profiling.stats import flags
from sandbox.isolation import process_tree, uid
from sandbox.supervisor.process_register import SLOTS, ProcessRegister
from sandbox.supervisor.zygote_client import Zygote
from tasks.node.gpu_process_owners import CardOwners, CardReadings
from tests.tasks.example_jobs import until

GONE = 2**22 + 1
"""No system has so high a number for a process."""
WAITS = [sys.executable, "-c", "input()"]
STARTS_ANOTHER = (
    "import subprocess, sys; p = subprocess.Popen({!r}); print(p.pid, flush=True); input(); p.kill(); p.wait()"
)
"""Itself it waits too, and ends the other first."""
LEAVES_ANOTHER = """
import subprocess
nothing = subprocess.DEVNULL
print(subprocess.Popen({!r}, stdin=nothing, stdout=nothing, stderr=nothing).pid, flush=True)
"""


@pytest.fixture
def register(tmp_path: Path) -> Iterator[ProcessRegister]:
    opened = ProcessRegister(tmp_path / "state" / "processes")
    yield opened
    opened.close()


class Listing(CardMonitor):
    """A card whose driver lists these processes, besides this one."""

    def __init__(self) -> None:
        super().__init__("no card")
        self.pids: list[int] = []

    def sample(self, *, thorough: bool = False) -> CardSample:
        listed = tuple(CardProcess(pid, 1 << 20) for pid in [os.getpid(), *self.pids])
        return CardSample(processes=listed if thorough else None)


Around = Callable[..., list[int] | None]


@pytest.fixture
def reported(register: ProcessRegister) -> Around:
    """Takes the lists of one job in turn; what its times report of other programs."""

    def taken(*lists: list[int], between: Callable[[], object] = lambda: None) -> list[int] | None:
        card = Listing()
        readings = CardReadings(card, CardOwners(register, os.getppid()))
        for number, pids in enumerate(lists):
            card.pids = pids
            readings.take(thorough=True)
            readings.take()
            if not number:
                between()
        state = readings.state()
        assert bool(flags.others_on_the_card(state)) is bool(state.other_processes)
        return None if state.other_processes is None else [one.pid for one in state.other_processes]

    return taken


def stopped(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def foreign() -> int:
    """Whatever has started this test's worker: no process of the service."""
    status = process_tree.status_of(os.getppid())
    assert status is not None and status.parent > 0
    return status.parent


def test_a_process_has_its_parent_and_one_that_is_gone_has_none() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as child:
        status = process_tree.status_of(child.pid)
        assert status is not None and status.parent == os.getpid() and process_tree.user_of(child.pid) == os.getuid()
        child.communicate()
    assert process_tree.status_of(child.pid) is process_tree.status_of(GONE) is process_tree.user_of(GONE) is None


def test_what_this_worker_has_started_is_its_own(reported: Around) -> None:
    starts = [sys.executable, "-c", STARTS_ANOTHER.format(WAITS)]
    with subprocess.Popen(starts, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert reported([child.pid, grandchild, os.getppid()]) == []
        assert reported([child.pid, foreign()], [child.pid]) == [foreign()]
        child.communicate()


def test_an_own_runner_that_has_ended_since_is_no_strangers(reported: Around, register: ProcessRegister) -> None:
    """Another pool child's, which has noted it: here it ended between the driver's list and a look at it."""
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, text=True) as runner:
        register.add(runner.pid)
        stopped(runner)
    assert process_tree.status_of(runner.pid) is None
    assert reported([runner.pid]) == []
    assert reported([], [runner.pid]) == []
    assert reported([runner.pid], [runner.pid]) == []


def test_one_that_ends_between_two_lists_is_whose_it_was(reported: Around) -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, text=True) as own:
        assert reported([own.pid], [own.pid], between=lambda: stopped(own)) == []


def test_a_runner_whose_zygote_went_first_is_known_by_the_register(reported: Around, register: ProcessRegister) -> None:
    """Its parent is another then: what it has on a card may take seconds to be torn down."""
    leaves = subprocess.run(
        ["setsid", sys.executable, "-c", LEAVES_ANOTHER.format(["sleep", "60"])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    orphan = int(leaves.stdout)
    try:
        assert _root_of(orphan) not in (os.getpid(), os.getppid())
        assert reported([orphan]) == [orphan]
        register.add(orphan)
        assert reported([orphan]) == []
    finally:
        os.kill(orphan, 9)


def _root_of(pid: int) -> int:
    status = process_tree.status_of(pid)
    return status.parent if status is not None else 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process another user")
def test_an_orphan_of_a_submissions_user_is_its_own(reported: Around) -> None:
    for user, others in ((uid.FIRST_USER + 4711, False), (4711, True)):
        leaves = subprocess.run(
            [sys.executable, "-c", LEAVES_ANOTHER.format(["sleep", "60"]).replace(").pid", f", user={user}).pid")],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        orphan = int(leaves.stdout)
        try:
            if _root_of(orphan) != 1:
                pytest.skip("orphans have another parent here than the first process")
            assert reported([orphan]) == ([orphan] if others else [])
        finally:
            os.kill(orphan, 9)


def test_a_number_that_is_anothers_now_is_not_taken_for_an_own_one(
    reported: Around, register: ProcessRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = process_tree.status_of
    earlier, pid = process_tree.ProcessStatus(os.getpid(), 1), foreign()
    with monkeypatch.context() as patch:
        patch.setattr(process_tree, "status_of", lambda asked: earlier if asked == pid else real(asked))
        register.add(pid)
    now = real(pid)
    assert now is not None and register.has(pid, 1) and not register.has(pid, now.started)
    assert reported([pid]) == [pid]


def test_a_program_that_goes_on_is_reported_though_it_has_ended_by_the_second_list(reported: Around) -> None:
    stranger = subprocess.run(
        ["setsid", sys.executable, "-c", LEAVES_ANOTHER.format(["sleep", "60"])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    pid = int(stranger.stdout)

    def end() -> None:
        os.kill(pid, 9)
        until(lambda: process_tree.status_of(pid) is None)

    assert reported([pid], [pid], between=end) == [pid]


def test_one_that_nobody_could_look_at_is_reported_where_it_stays(reported: Around) -> None:
    assert reported([GONE], []) == [], "it has just ended"
    assert reported([GONE], [GONE]) == [GONE], "a process of another PID namespace"


def test_lists_of_another_namespace_report_nobody(register: ProcessRegister) -> None:
    """Not even where a number in them was once that of a runner here."""
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, text=True) as ended:
        register.add(ended.pid)
        stopped(ended)
    card = Listing()
    readings = CardReadings(card, CardOwners(register, os.getppid()))
    card.sample = lambda thorough=False: CardSample(  # type: ignore[method-assign]
        processes=tuple(CardProcess(pid, 1) for pid in (GONE, ended.pid)) if thorough else None
    )
    readings.take(thorough=True)
    readings.take(thorough=True)
    assert readings.state().other_processes is None


def test_what_a_zygote_forks_is_noted(tmp_path: Path, register: ProcessRegister) -> None:
    zygote = Zygote(tmp_path, arch=None, memory_limit=1 << 30, register=register)
    try:
        folder = zygote.private_folder(tmp_path / "job")
        runner = zygote.runner(folder, gpu=False, deadline=time.monotonic() + 60, cancelled=lambda: False)
        status = process_tree.status_of(runner.pid)
        assert status is not None and register.has(runner.pid, status.started)
        runner.close()
        again = ProcessRegister(tmp_path / "state" / "processes")
        assert again.has(runner.pid, None), "every worker with this STATE_DIR knows it"
        assert not again.has(runner.pid + SLOTS, None) and not again.has(0, None)
        again.close()
    finally:
        zygote.close()


def test_whom_it_is_asked_for_takes_no_time_of_the_device(register: ProcessRegister) -> None:
    owners = CardOwners(register, os.getppid())
    began = time.thread_time()
    for _ in range(100):
        owners.look([os.getpid(), GONE])
    assert (time.thread_time() - began) / 100 < 0.01
