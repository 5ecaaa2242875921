"""Whose fault a runner's death is: the service's before the submission was sent, then whose doing it was."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.base import Artifact, Target
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.isolation import oom_kills as memory_kills
from sandbox.isolation.cgroup import PREFIX, Cgroups
from sandbox.supervisor import runner_process
from sandbox.supervisor.runner_process import RunnerProcess
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tests.sandbox.build_request import build_request
from tests.sandbox.counting import pidfd

KERNEL = Kernel("def kernel_fn(x):\n    return x\n", KernelType.TORCH)


def killed(runner: RunnerProcess) -> None:
    with pidfd(runner.pid) as descriptor:
        os.kill(runner.pid, signal.SIGKILL)
        gone, _, _ = select.select([descriptor], [], [], 10.0)
    assert gone


def test_runner_killed_before_its_submission_is_an_infrastructure_fault(
    session: Callable[..., Session], folder: Path
) -> None:
    opened = session()
    killed(opened.runner)
    with pytest.raises(InfrastructureFault, match="before it had a submission"):
        opened.build(KERNEL)


def test_builder_that_cannot_be_confined_is_an_infrastructure_fault(zygote: Zygote, folder: Path) -> None:
    (folder / "file").touch()
    os.chown(folder / "file", folder.stat().st_uid, folder.stat().st_gid)
    # It cannot go there, after it was forked and before it takes its first message.
    runner = zygote.runner(folder / "file", gpu=False, deadline=time.monotonic() + 30.0, cancelled=lambda: False)
    opened = Session(runner, Target("cpu", None), 1 << 20)
    try:
        with pytest.raises(InfrastructureFault, match="before it had a submission: NotADirectoryError"):
            opened.build(KERNEL)
    finally:
        opened.close()


def test_builder_that_exits_is_crashed(session: Callable[..., Session]) -> None:
    with pytest.raises(KernelFault, match="exited with code 70") as caught:
        session().build(Kernel("import os\nos._exit(70)\n", KernelType.TORCH))
    assert caught.value.status is Status.CRASHED


@pytest.fixture
def oom_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], object]:
    """Says how many the system has killed for want of memory, in place of the machine."""
    file = tmp_path / "vmstat"
    monkeypatch.setattr(memory_kills, "MACHINE", file)

    def say(number: int) -> object:
        return file.write_text(f"nr_free_pages 4711\noom_kill {number}\nunevictable_pgs_culled 0\n")

    say(2)
    return say


def loaded(opened: Session) -> Session:
    opened.load(KERNEL, Artifact(), None, 0)
    return opened


def built(opened: Session) -> Session:
    opened.build(KERNEL)
    return opened


@pytest.mark.parametrize("prepared", [loaded, built])
def test_runner_killed_from_outside_is_an_infrastructure_fault(
    session: Callable[..., Session], prepared: Callable[[Session], Session], oom_kills: Callable[[int], object]
) -> None:
    opened = prepared(session())
    killed(opened.runner)
    with pytest.raises(InfrastructureFault, match=r"was killed \(SIGKILL\), and not for want of memory"):
        opened.build(KERNEL)


def test_runner_killed_during_a_request_is_an_infrastructure_fault(session: Callable[..., Session]) -> None:
    opened = session()
    opened.runner.send(build_request(opened, Kernel("while True: pass", KernelType.TORCH)))
    with pytest.raises(TimeoutError):
        opened.runner.receive(within=0.05)
    killed(opened.runner)
    with pytest.raises(InfrastructureFault, match="SIGKILL"):
        opened.runner.receive()


def test_receive_without_an_answer_ends_within_its_limit(session: Callable[..., Session]) -> None:
    opened = session()
    opened.runner.send(build_request(opened, Kernel("while True: pass", KernelType.TORCH)))
    took = []
    for _ in range(20):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            opened.runner.receive(within=0.001)
        took.append(time.monotonic() - began)
    assert min(took) < runner_process.TICK_S / 2


def test_runner_whose_children_hold_its_channel_is_found_dead(session: Callable[..., Session]) -> None:
    opened = session(seconds=20.0)
    source = "import os, time\nif not os.fork():\n    time.sleep(60)\n"
    opened.build(Kernel(source + KERNEL.source_code, KernelType.TORCH))
    killed(opened.runner)
    with pytest.raises(InfrastructureFault, match="SIGKILL"):
        opened.build(KERNEL)


SLOW_END = """
import os
memory = os.memfd_create("large")
for _ in range(512):
    os.write(memory, bytes(1 << 20))
"""
"""The system lets go of such a file when its process no longer has a channel and is not dead yet."""


def test_runner_that_exits_slowly_keeps_its_cause_of_death(
    session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_process, "EXIT_WAIT_S", 0.0)
    opened = session()
    opened.build(Kernel(SLOW_END + KERNEL.source_code, KernelType.TORCH))
    os.kill(opened.runner.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureFault, match="SIGKILL"):
        opened.build(KERNEL)


HANGS_UP = {
    "and goes on": "import os, time\nos.close(3)\ntime.sleep(60)\n",
    "and its first thread ends": """
import ctypes, os, threading, time
def hang_up():
    time.sleep(0.2)
    os.close(3)
    time.sleep(60)
threading.Thread(target=hang_up).start()
ctypes.CDLL(None).syscall(60, 0)
""",
}


@pytest.mark.parametrize("way", HANGS_UP)
def test_runner_that_closes_its_channel_is_crashed(session: Callable[..., Session], way: str) -> None:
    with pytest.raises(KernelFault, match="closed its connection") as caught:
        session().build(Kernel(HANGS_UP[way], KernelType.TORCH))
    assert caught.value.status is Status.CRASHED


def test_runner_killed_by_the_oom_killer_is_out_of_memory(
    session: Callable[..., Session], oom_kills: Callable[[int], object]
) -> None:
    opened = session()
    oom_kills(3)  # Before it had a submission: another's.
    loaded(opened)
    oom_kills(4)
    killed(opened.runner)
    with pytest.raises(KernelFault, match="too much memory") as caught:
        opened.build(KERNEL)
    assert caught.value.status is Status.OUT_OF_MEMORY


def test_runner_in_a_cgroup_counts_only_its_own_oom_kills(
    session: Callable[..., Session],
    zygote: Zygote,
    tmp_path: Path,
    oom_kills: Callable[[int], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = tmp_path / "groups"
    groups.mkdir()
    monkeypatch.setattr(zygote, "groups", Cgroups(groups))
    for mine, fault in ((0, InfrastructureFault), (1, KernelFault)):
        opened = session()
        events = groups / f"{PREFIX}{os.getpid()}-{opened.runner.pid}" / "memory.events"
        events.write_text("low 0\nmax 7\noom 0\noom_kill 0\noom_group_kill 0\n")
        loaded(opened)
        oom_kills(10 + mine)
        events.write_text(f"low 0\nmax 7\noom {mine}\noom_kill {mine}\noom_group_kill 0\n")
        killed(opened.runner)
        with pytest.raises(fault):
            opened.build(KERNEL)


@pytest.mark.parametrize("lacking", ["filter", "count"])
def test_runner_killed_without_an_oom_count_is_out_of_memory(
    session: Callable[..., Session], zygote: Zygote, tmp_path: Path, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "filter":
        monkeypatch.setattr(zygote, "uses_seccomp", False)
    else:
        monkeypatch.setattr(memory_kills, "MACHINE", tmp_path / "nowhere")
    opened = loaded(session())
    killed(opened.runner)
    with pytest.raises(KernelFault, match="cannot tell apart") as caught:
        opened.build(KERNEL)
    assert caught.value.status is Status.OUT_OF_MEMORY


KILLS_ITSELF_OUT_OF_SIGHT = """
import os, threading, time
other = threading.Thread(target=time.sleep, args=(60,), daemon=True)
other.start()
os.kill(other.native_id, 9)
time.sleep(60)
"""
"""By another thread's number, which a filter of system calls cannot know (docs/security.md)."""


def test_submission_that_kills_itself_by_a_thread_id_is_an_infrastructure_fault(
    session: Callable[..., Session],
) -> None:
    with pytest.raises(InfrastructureFault, match="SIGKILL"):
        session().build(Kernel(KILLS_ITSELF_OUT_OF_SIGHT, KernelType.TORCH))


HONEST = """
import os, resource, signal, subprocess, sys, time
def ended(child): return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for new_group in (False, True):
    child = subprocess.Popen(["sleep", "60"], start_new_session=new_group)
    os.killpg(child.pid, signal.SIGKILL) if new_group else child.kill()
    assert child.wait() == -9
try:
    subprocess.run(["sleep", "60"], timeout=0.01)
except subprocess.TimeoutExpired:
    pass
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
child.kill()
child.join()
assert child.exitcode == -9
resource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))
resource.getrlimit(resource.RLIMIT_CPU)
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(0, signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
def kernel_fn(x):
    return x
"""


def test_submission_may_kill_its_own_children(session: Callable[..., Session]) -> None:
    opened = session()
    opened.build(Kernel(HONEST, KernelType.TORCH))
    assert opened.runner.alive, "its own ends did not end it"
