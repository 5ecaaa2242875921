"""Whoever is frozen does nothing, nor does anybody that it has started; afterwards all go on."""

from __future__ import annotations

import dataclasses
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from sandbox.isolation import process_tree
from sandbox.supervisor import process_freezer
from sandbox.supervisor.process_freezer import CpuUsage, Frozen, thaw
from tests.conftest import die_with_parent
from tests.sandbox.counting import WITHIN_S, Stamps, end, frozen_by, moves, pidfd, still

COUNTING = """
import ctypes, mmap, os, sys, threading

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as a runner is: what its children leave behind is its own
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4)

def count(place):
    while True:
        shared[place] = (shared[place] + 1) % 256

def child(place, *, orphaned=False):
    if os.fork() == 0:
        if orphaned:
            os.setsid()
            if os.fork():
                os._exit(0)
        count(place)

if sys.argv[2] == "family":
    child(1)
    child(2, orphaned=True)
threading.Thread(target=count, args=(3,), daemon=True).start()
count(0)
"""


def started(kind: str, counters: mmap.mmap, folder: Path, places: set[int]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTING, str(folder / "shared"), kind], preexec_fn=die_with_parent
    )
    moves(counters, places)
    return process


def thawed(pid: int, frozen: Frozen) -> None:
    with pidfd(pid) as descriptor:
        thaw(pid, frozen.pids, descriptor)


def ran_ns(ran: Mapping[int, CpuUsage]) -> int:
    return sum(each.ns for each in ran.values())


@pytest.mark.parametrize(
    ("kind", "places", "members"), [("alone", {0, 3}, 1), ("family", {0, 1, 2, 3}, 3)], ids=lambda given: str(given)
)
def test_freeze_stops_the_whole_family_and_thaw_continues_it(
    counters: mmap.mmap, tmp_path: Path, kind: str, places: set[int], members: int
) -> None:
    process = started(kind, counters, tmp_path, places)
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        assert still(counters)
        # A process that has ended and was not waited for yet counts as one of the family.
        assert process.pid in frozen.pids and len(frozen.pids) >= members
        thawed(process.pid, frozen)
        moves(counters, places)
    finally:
        end(process, frozen.pids)


def test_freeze_during_a_fork_stops_the_new_child(
    counters: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that is under way as its process is stopped comes to its end first: the last look before may miss it."""
    process = started("family", counters, tmp_path, {0, 1, 2, 3})
    looked = []

    def before_the_fork(pid: int) -> set[int]:
        while not all(process_freezer.living_threads(pid).values()):
            time.sleep(0.001)
        looked.append(pid)
        return {pid} if len(looked) == 1 else process_tree.with_descendants(pid)

    monkeypatch.setattr(process_freezer, "with_descendants", before_the_fork)
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        assert still(counters)
    finally:
        end(process, frozen.pids)


def test_freeze_charges_a_family_the_search_and_a_single_process_not(counters: mmap.mmap, tmp_path: Path) -> None:
    # Asleep, as a runner that has said that it is done.
    alone = subprocess.Popen(["sleep", "1000"], preexec_fn=die_with_parent)
    while Path(f"/proc/{alone.pid}/stat").read_text().split()[1:3] != ["(sleep)", "S"]:
        time.sleep(0.001)
    stamps = Stamps()
    frozen = frozen_by(alone.pid, WITHIN_S, stamps)
    end(alone, frozen.pids)
    # Stamped before the search, but for what it ran until it stopped.
    assert frozen.since_ns - stamps.given[0] <= ran_ns(frozen.usage)
    family = started("family", counters, tmp_path, {0, 1, 2})
    frozen = frozen_by(family.pid, WITHIN_S, stamps)
    end(family, frozen.pids)
    assert frozen.since_ns == stamps.given[-1], "stamped after the search"


def test_stayed_frozen_after_a_continue_is_false(counters: mmap.mmap, tmp_path: Path) -> None:
    process = started("alone", counters, tmp_path, {0})
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        assert frozen.stayed_frozen
        os.kill(process.pid, signal.SIGCONT)  # As by a descriptor, where there is no filter.
        moves(counters, {0})
        assert not frozen.stayed_frozen
    finally:
        end(process, frozen.pids)


def test_stayed_frozen_after_a_moment_of_running_is_false(counters: mmap.mmap, tmp_path: Path) -> None:
    process = started("alone", counters, tmp_path, {0})
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        os.kill(process.pid, signal.SIGCONT)
        while ran_ns(process_freezer.cpu_usage([process.pid])) < ran_ns(frozen.usage) + 10 * process_freezer.SLACK_NS:
            pass
        again = frozen_by(process.pid, WITHIN_S)
        assert again.stayed_frozen and not frozen.stayed_frozen
    finally:
        end(process, frozen.pids)


def told(frozen: Frozen, ns: int, *, turns: int) -> Frozen:
    """As if its first thread had run for that long since, in so many turns."""
    thread, ran = next(iter(frozen.usage.items()))
    return dataclasses.replace(frozen, usage={**frozen.usage, thread: CpuUsage(ran.ns - ns, ran.switches - turns)})


def test_stayed_frozen_ignores_late_figures_of_the_kernel(counters: mmap.mmap, tmp_path: Path) -> None:
    process = started("alone", counters, tmp_path, {0})
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        late, put_off = told(frozen, 4_000_000, turns=0), told(frozen, process_freezer.SLACK_NS // 2, turns=1)
        assert frozen.stayed_frozen and late.stayed_frozen and put_off.stayed_frozen
        assert not told(frozen, 4_000_000, turns=1).stayed_frozen
    finally:
        end(process, frozen.pids)


WRITING = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
begun = mmap.mmap(file, 4)
large = b"\\1" * (256 << 20)
memory = os.memfd_create("x")
begun[0] = 1
while True:
    os.pwrite(memory, large, 0)
"""


def test_freeze_during_a_system_call_charges_until_its_end(counters: mmap.mmap, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path / "shared")], preexec_fn=die_with_parent)
    moves(counters, {0})
    ran_before_ns, before = ran_ns(process_freezer.cpu_usage([process.pid])), time.perf_counter_ns()
    frozen = frozen_by(process.pid, WITHIN_S)
    end(process, frozen.pids)
    # Tens of milliseconds, on a processor that others want too; nothing where the stop came in between two calls.
    still_ran_ns = ran_ns(frozen.usage) - ran_before_ns
    assert frozen.since_ns - before > still_ran_ns / 2 or still_ran_ns < 5e6


def test_freeze_while_a_thread_ends_charges_the_whole_time(
    counters: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that had run for long and is gone must not be taken off what the others still ran."""
    process = started("alone", counters, tmp_path, {0, 3})
    looks: list[dict[int, CpuUsage]] = []

    def one_is_gone(pids: Iterable[int]) -> dict[int, CpuUsage]:
        looks.append(ran(pids))
        return looks[0] | {0: CpuUsage(10**10, 1)} if len(looks) == 1 else looks[-1]

    def awake_at_first(pid: int) -> dict[int, bool]:
        asked.append(pid)
        return dict.fromkeys(living(pid), False) if len(asked) == 1 else living(pid)

    ran, living = process_freezer.cpu_usage, process_freezer.living_threads
    asked: list[int] = []
    monkeypatch.setattr(process_freezer, "cpu_usage", one_is_gone)
    monkeypatch.setattr(process_freezer, "living_threads", awake_at_first)
    stamps = Stamps()
    frozen = frozen_by(process.pid, WITHIN_S, stamps)
    end(process, frozen.pids)
    assert frozen.since_ns == stamps.given[-1]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that is none of a runner's, under a number that one of its children had a moment ago."""
    process = subprocess.Popen(["sleep", "1000"], preexec_fn=die_with_parent)
    until = time.monotonic() + WITHIN_S
    while state(process.pid) != "S":
        assert time.monotonic() < until
    yield process.pid
    process.kill()
    process.wait()


def test_freeze_does_not_stop_a_process_with_a_reused_pid(
    counters: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bystander: int
) -> None:
    process = started("family", counters, tmp_path, {0, 1, 2, 3})
    looks = []

    def a_moment_too_late(pid: int) -> set[int]:
        looks.append(pid)
        return process_tree.with_descendants(pid) | ({bystander} if len(looks) == 1 else set())

    monkeypatch.setattr(process_freezer, "with_descendants", a_moment_too_late)
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        assert still(counters) and len(looks) > 1
        assert state(bystander) == "S"
    finally:
        end(process, frozen.pids - {bystander})


def test_thaw_does_not_continue_a_process_with_a_reused_pid(
    counters: mmap.mmap, tmp_path: Path, bystander: int
) -> None:
    process = started("family", counters, tmp_path, {0, 1, 2, 3})
    frozen = frozen_by(process.pid, WITHIN_S)
    try:
        os.kill(bystander, signal.SIGSTOP)
        os.waitid(os.P_PID, bystander, os.WSTOPPED | os.WNOWAIT)
        thawed(process.pid, dataclasses.replace(frozen, pids=frozen.pids | {bystander}))
        moves(counters, {0, 1, 2, 3})
        assert state(bystander) == "T"
    finally:
        end(process, frozen.pids)
