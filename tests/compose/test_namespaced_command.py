"""Nothing that a confined command starts or mounts outlives it, however it ends."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.compose import namespaced_command
from tests.compose.project import ROOT
from tests.tasks.example_jobs import until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*namespaced_command.UNSHARE, "true"], capture_output=True).returncode != 0,
    reason="needs root, and namespaces of mounts and processes",
)

FOREVER = "2147483"


def shell(script: str) -> list[str]:
    return ["bash", "-euc", script]


def survivors(mark: str) -> list[int]:
    return [each.pid for each in psutil.process_iter(["cmdline"]) if mark in " ".join(each.info["cmdline"] or [])]


def test_its_exit_status_is_handed_on() -> None:
    assert namespaced_command.run(shell("exit 0"), 60) == 0
    assert namespaced_command.run(shell("exit 7"), 60) == 7


def test_what_it_leaves_running_and_mounted_is_gone(tmp_path: Path) -> None:
    place, mark = shlex.quote(str(tmp_path)), f"{FOREVER}.{os.getpid()}"
    leave = f"mount -t tmpfs tmpfs {place}; touch {place}/inside; setsid sleep {mark} & test -e {place}/inside"
    assert namespaced_command.run(shell(leave), 60) == 0
    until(lambda: not survivors(mark))  # The kernel kills them when their first process has ended.
    assert str(tmp_path) not in Path("/proc/mounts").read_text() and not list(tmp_path.iterdir())


def test_over_its_limit_it_is_asked_to_stop_first(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    patient = f"trap 'touch {shlex.quote(str(stopped))}; exit 0' TERM; sleep {FOREVER}.{os.getpid()} & wait"
    with pytest.raises(namespaced_command.TimeLimit):
        namespaced_command.run(shell(patient), 1, stop_s=60)
    assert stopped.exists()
    until(lambda: not survivors(f"{FOREVER}.{os.getpid()}"))


def test_one_that_does_not_stop_is_killed_with_all_that_it_started() -> None:
    mark = f"{FOREVER}.{os.getpid()}"
    stubborn = f"trap '' TERM; setsid sleep {mark} & while :; do wait; done"
    with pytest.raises(namespaced_command.TimeLimit):
        namespaced_command.run(shell(stubborn), 1, stop_s=1)
    until(lambda: not survivors(mark))


def test_it_ends_with_the_process_that_confined_it() -> None:
    mark = f"{FOREVER}.{os.getpid()}"
    program = (
        "from tests.compose import namespaced_command; "
        f"namespaced_command.run({shell(f'echo started; exec sleep {mark}')}, 600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        process.kill()
    until(lambda: not survivors(mark))


def test_its_memory_over_the_engines_folders_is_not_seen_outside() -> None:
    write = "[(each / 'inside').write_text('') for each in namespaced_command.HIDDEN]"
    program = f"from tests.compose import namespaced_command; namespaced_command.hide_folders(); {write}"
    assert (
        namespaced_command.run(shell(f"cd {shlex.quote(str(ROOT))}; {sys.executable} -c {shlex.quote(program)}"), 60)
        == 0
    )
    assert not any((folder / "inside").exists() for folder in namespaced_command.HIDDEN)
