"""The supervisor with real processes: it restarts what dies and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from domain.paths import ROOT

DEADLINE_S = 30.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def supervised(folder: Path, script: str, body: str, grace_s: float = 6.0) -> subprocess.Popen[bytes]:
    """A process of its own that supervises `script` (a shell's) and runs `body` with `supervisor` at hand."""
    program = f"""
        import os, pathlib
        from stack.child import Program
        from stack.log_files import LogBook
        from stack.supervisor import Supervisor

        folder = pathlib.Path({str(folder)!r})
        supervisor = Supervisor(LogBook(folder, None), {grace_s})
        supervisor.start(Program("program", ["bash", "-c", {script!r}], dict(os.environ), folder, drains=True))
    """
    source = textwrap.dedent(program) + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", source], cwd=ROOT)


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


UNTIL_STOP = """
    while not (folder / "stop").exists():
        supervisor.tick(0.05)
    supervisor.stop()
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("echo $$ >> pids; exec sleep 600", id="ends when asked"),
        pytest.param("trap '' TERM; echo $$ >> pids; while true; do sleep 1; done", id="ignores the signal"),
        pytest.param("setsid bash -c 'echo $$ >> pids; exec sleep 600' & wait", id="a session of its own"),
        pytest.param("(setsid bash -c 'echo $$ >> pids; exec sleep 600' &); exec sleep 600", id="an orphan"),
    ],
)
def test_stop_leaves_no_process(tmp_path: Path, script: str) -> None:
    supervisor = supervised(tmp_path, script, UNTIL_STOP)
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 1, "the program has started")
    (tmp_path / "stop").touch()
    assert supervisor.wait(timeout=DEADLINE_S) == 0
    assert not psutil.pid_exists(numbers(tmp_path / "pids")[0])


@pytest.mark.parametrize(("grace_s", "finished"), [(20.0, True), (0.1, False)])
def test_what_is_asked_to_stop_has_time_to_finish(tmp_path: Path, grace_s: float, finished: bool) -> None:
    work = "trap 'sleep 1; touch finished; exit' TERM; echo $$ >> pids; while true; do sleep 0.05; done"
    supervisor = supervised(tmp_path, work, UNTIL_STOP, grace_s)
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 1, "the program has started")
    (tmp_path / "stop").touch()
    assert supervisor.wait(timeout=DEADLINE_S) == 0
    assert (tmp_path / "finished").exists() == finished


def test_what_dies_is_started_again(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, "echo $$ >> pids; echo alive; exec sleep 600", UNTIL_STOP)
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 1, "the program has started")
    os.kill(numbers(tmp_path / "pids")[0], 9)
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 2, "it was started again")
    (tmp_path / "stop").touch()
    assert supervisor.wait(timeout=DEADLINE_S) == 0
    assert "ended with status -9; it is started again" in (tmp_path / "stack.log").read_text()
    assert (tmp_path / "program.log").read_text().split() == ["alive", "alive"]


def test_children_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, "echo $$ >> pids; exec sleep 600", UNTIL_STOP)
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 1, "the program has started")
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: not psutil.pid_exists(numbers(tmp_path / "pids")[0]), "the program has ended too")


UNTIL_DRAINED = """
    from stack.child import Program
    supervisor.start(Program("other", ["bash", "-c", "echo $$ >> others; exec sleep 600"], dict(os.environ), folder))
    while not (folder / "stop").exists():
        supervisor.tick(0.05)
    supervisor.ask_to_drain()
    (folder / "asked").touch()
    while [program.name for program in supervisor.draining] == ["program"]:
        supervisor.tick(0.05)
    supervisor.end_draining()
    (folder / "drained").touch()
    supervisor.stop()
"""


def test_while_one_drains_the_others_are_looked_after_and_it_is_not_started_again(tmp_path: Path) -> None:
    until_told = "while [ ! -e finish ]; do sleep 0.02; done"
    work = f"trap '{until_told}; echo finished; exit' TERM; echo $$ >> pids; while true; do sleep 0.05; done"
    supervisor = supervised(tmp_path, work, UNTIL_DRAINED, grace_s=0.1)
    wait_for(lambda: len(numbers(tmp_path / "others")) == len(numbers(tmp_path / "pids")) == 1, "both have started")
    (tmp_path / "stop").touch()
    wait_for((tmp_path / "asked").exists, "one is asked to drain")
    os.kill(numbers(tmp_path / "others")[0], 9)
    wait_for(lambda: len(numbers(tmp_path / "others")) == 2, "the other was started again")
    (tmp_path / "finish").touch()
    assert supervisor.wait(timeout=DEADLINE_S) == 0
    assert (tmp_path / "drained").exists()
    assert (tmp_path / "program.log").read_text().split() == ["finished"]
    assert len(numbers(tmp_path / "pids")) == 1
    assert not any(psutil.pid_exists(pid) for pid in numbers(tmp_path / "others") + numbers(tmp_path / "pids"))


def test_the_console_says_why_a_quiet_program_ended(tmp_path: Path) -> None:
    """Redis, whose own file has all its lines, ends where its disk is full."""
    body = """
    script = "echo starting; echo 'the disk is full' >&2; exit 1"
    supervisor.start(Program("redis", ["bash", "-c", script], dict(os.environ), folder, quiet=True))
    while supervisor.deaths.get("redis", 0) < 2:
        supervisor.tick(0.05)
    supervisor.stop()
    """
    assert supervised(tmp_path, "exec sleep 600", body).wait(timeout=DEADLINE_S) == 0
    lines = (tmp_path / "cuda_eval_server.log").read_text().splitlines()
    assert [line.count("'the disk is full'") for line in lines if "redis ended with status 1" in line] == [1, 1]
    assert "starting" not in "".join(lines)
