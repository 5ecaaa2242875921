"""A runner that a tool starts: it answers as any other, is confined as any other, and the tool comes to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from backends.base import Artifact, Target
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.runner import tool_entry
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote

TOOL = ("/bin/sh", "-c", '"$@"; code=$?; echo "the runner ended with $code" > tool.txt; exit 3', "tool")
"""Starts what it is told to start, and writes its report when that has ended, as profilers do."""

Open = Callable[..., Session]


@pytest.fixture
def beneath(zygote: Zygote, folder: Path) -> Iterator[Open]:
    made: list[Session] = []

    def start(*tool: str, seconds: float = 60.0) -> Session:
        runner = zygote.runner(
            folder,
            gpu=True,
            deadline=time.monotonic() + seconds,
            cancelled=lambda: False,
            command=[*tool, *tool_entry.RUNNER],
        )
        made.append(Session(runner, Target("cpu", None), 64 << 20))
        return made[-1]

    yield start
    for one in made:
        one.close()


def kernel(body: str) -> Kernel:
    source = f"import os, torch\ncalls = 0\ndef kernel_fn(x):\n    global calls\n    calls += 1\n    {body}\n"
    return Kernel(source, KernelType.TORCH)


def load(session: Session, body: str) -> None:
    session.load(kernel(body), Artifact(), None, 0)


def test_it_answers_and_the_tool_ends_after_it(beneath: Open, folder: Path) -> None:
    session = beneath(*TOOL)
    load(session, "open('calls', 'w').write(f'{calls} {x.sum().item()}'); return x")
    session.inspect([torch.ones(5)], warm_up=2)
    assert (folder / "calls").read_text() == "3 5.0"
    session.runner.close_and_wait()
    assert (folder / "tool.txt").read_text() == "the runner ended with 0\n"
    assert not session.runner.alive


def test_it_is_confined_as_any_other(beneath: Open, zygote: Zygote, folder: Path) -> None:
    secret = folder.parent / "secret"
    secret.write_text("of another job")
    session = beneath(*TOOL)
    load(session, f"print(os.path.exists('/etc/passwd'), os.getuid()); open({str(secret)!r}).read(); return x")
    with pytest.raises(KernelFault, match="PermissionError"):
        session.inspect([torch.ones(1)], warm_up=0)
    if os.geteuid() == 0:
        session.runner.close_and_wait()
        assert f" {folder.stat().st_uid}" in session.runner.output.text()


def test_what_a_submission_reads_is_not_the_referees_word(beneath: Open) -> None:
    session = beneath(*TOOL)
    load(session, "import sys; assert sys.stdin.read() == ''; return x")
    session.inspect([torch.ones(1)], warm_up=0)


def test_a_tool_that_does_not_start_it_is_heard(beneath: Open) -> None:
    session = beneath("/bin/sh", "-c", "echo no counters for you >&2; exit 4")
    # Whichever comes first: that it cannot be told any more, or that it does not answer.
    with pytest.raises((KernelFault, InfrastructureFault)):
        load(session, "return x")
    assert "no counters for you" in session.runner.output.text()


def test_one_that_hangs_is_killed_with_its_tool(beneath: Open, folder: Path) -> None:
    session = beneath(*TOOL)
    load(session, "open('pid', 'w').write(str(os.getpid())); import time; time.sleep(600)")
    session.set_deadline(time.monotonic() + 1)
    with pytest.raises(KernelFault) as caught:
        session.inspect([torch.ones(1)], warm_up=0)
    assert caught.value.status is Status.TIMEOUT
    assert not Path("/proc", (folder / "pid").read_text()).exists()


def test_a_tool_that_goes_on_when_its_runner_has_ended_is_killed_at_the_deadline(beneath: Open, folder: Path) -> None:
    session = beneath("/bin/sh", "-c", '"$@"; echo > ended; exec sleep 600', "tool")
    load(session, "return x")
    session.set_deadline(time.monotonic() + 3)
    with pytest.raises(KernelFault) as caught:
        session.runner.close_and_wait()
    assert caught.value.status is Status.TIMEOUT and not session.runner.alive


def test_programs_without_a_runner(zygote: Zygote, folder: Path) -> None:
    runner = zygote.runner(
        folder,
        gpu=False,
        deadline=time.monotonic() + 30,
        cancelled=lambda: False,
        command=["/bin/sh", "-c", "echo report; cat > copied"],
    )
    runner.close_and_wait()
    assert runner.output.text() == "report\n" and (folder / "copied").read_text() == ""
    runner.close()
