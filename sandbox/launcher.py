"""The trusted end of the sandbox: starts a zygote, has it fork runners, talks to them, ends them at their deadline."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from domain.result import Status
from sandbox.channel import Channel, ChannelClosed, Message, ProtocolError
from sandbox.output import Output
from sandbox.reported_fault import reported

ZYGOTE_START_S = 120.0
TICK_S = 0.05
HANG_UP_S = 0.5
ROOT = Path(__file__).resolve().parent.parent
BRINGS_A_SUBMISSION = ("build", "load")
PAGE = os.sysconf("SC_PAGE_SIZE")

# What a runner's environment keeps of the worker's: where programs and libraries are, and nothing else.
INHERITED = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LANG", "TZ")


def clean_environment(folder: Path, *, interpret: bool) -> dict[str, str]:
    """The environment of a zygote and of every runner it forks."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *_extra_paths()])
    environment |= {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # torch.cuda.is_available() would otherwise initialise CUDA in the zygote, and CUDA does not survive a fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_MODULE_LOADING": "LAZY",
    }
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
        # One thread: on the host's few cores, threads that wait for each other measure what else the machine does.
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return environment


def _extra_paths() -> list[str]:
    # Libraries that were put on the path by hand (an offline install) must be there for the runner too.
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(ROOT)]


class Runner:
    """One untrusted process. `request` is a question with a deadline; every way of dying becomes a KernelFault."""

    def __init__(self, zygote: Zygote, pid: int, channel: Channel, output: Output, memory_limit: int) -> None:
        self.pid = pid
        self.channel = channel
        self.output = output
        self.deadline = float("inf")
        self.cancelled: Callable[[], bool] = lambda: False
        self._zygote = zygote
        self._memory_limit = memory_limit
        self._status: int | None = None
        self._entered = False
        self._pidfd = os.pidfd_open(pid)

    def request(self, message: Message, descriptors: tuple[int, ...] = ()) -> Message:
        """Sends a message and waits for the answer; raises KernelFault when it is a fault or never comes."""
        self.send(message, descriptors)
        return self.answer()

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message without waiting."""
        if self._status is not None:
            raise KernelFault(Status.CRASHED, "the kernel's process had been stopped before")
        try:
            self.channel.send(message, descriptors)
        except ChannelClosed:
            raise self._death() from None
        self._entered = self._entered or message["op"] in BRINGS_A_SUBMISSION

    def answer(self, within: float | None = None) -> Message:
        """The next answer. After `within` seconds TimeoutError, the runner goes on; at the deadline it is killed."""
        try:
            message = self._wait(time.monotonic() + within if within is not None else None)
        except ChannelClosed:
            raise self._death() from None
        except ProtocolError as error:
            self.kill()
            raise KernelFault(
                Status.CRASHED, f"the runner answered with something that is no message: {error}"
            ) from error
        if message["op"] == "fault":
            raise reported(message)
        return message

    def _wait(self, until: float | None) -> Message:
        self.channel.sock.setblocking(False)
        try:
            while (message := self.channel.poll()) is None:
                select.select([self.channel.fileno(), self.output.fileno()], [], [], TICK_S)
                now = time.monotonic()
                self._watch(now)
                if until is not None and now > until:
                    raise TimeoutError
        finally:
            self.channel.sock.setblocking(True)
        return message

    def _watch(self, now: float) -> None:
        self.output.drain()
        if now > self.deadline:
            self.kill()
            raise KernelFault(
                Status.TIMEOUT, "timed out: the kernel was stopped at its deadline; raise `timeout` or do less"
            )
        if self.cancelled():
            self.kill()
            raise JobCancelled
        if self._resident() > self._memory_limit:
            self.kill()
            raise KernelFault(
                Status.OUT_OF_MEMORY,
                f"the kernel's process used more than {self._memory_limit >> 20} MiB of host memory and was stopped",
            )

    def _resident(self) -> int:
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
                _, resident, shared, *_ = statm.read().split()
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * PAGE

    @property
    def alive(self) -> bool:
        return self._status is None and not select.select([self._pidfd], [], [], 0)[0]

    def _death(self) -> KernelFault:
        """The fault of a runner that is gone; raises InfrastructureFault where that is no submission's doing.

        That is so where its zygote went first, and where no submission had been sent to it.
        """
        ended, _, _ = select.select([self._pidfd], [], [], HANG_UP_S)
        status = self.kill()
        # Only now: a runner may be seen dead a moment before the zygote that takes it along.
        if not self._zygote.alive:
            raise InfrastructureFault("the zygote died, and the runner with it")
        if not self._entered:
            raise InfrastructureFault("a runner died before it had a submission")
        if not ended:
            return KernelFault(
                Status.CRASHED, "the kernel's process closed its connection to the referee and was stopped"
            )
        if not os.WIFSIGNALED(status):
            code = os.waitstatus_to_exitcode(status)
            return KernelFault(Status.CRASHED, f"the kernel's process exited with code {code} before it was done")
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            return KernelFault(Status.OUT_OF_MEMORY, "the kernel's process was killed by the system: too much memory")
        return KernelFault(Status.CRASHED, f"the kernel's process crashed: {_signal_name(number)}")

    def stop(self) -> None:
        """Sends the signals that end the runner and its session, and does not wait: `kill` does."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):  # forked a moment ago, not yet in a session of its own
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def kill(self) -> int:
        """Ends the runner and everything it started; returns its wait status. Safe to call again.

        A runner that has died by itself keeps its own status: a signal to a zombie changes nothing.
        """
        if self._status is None:
            self.stop()
            self._status = self._zygote.reap(self.pid)
            os.close(self._pidfd)
            while select.select([self.output], [], [], 0)[0] and self.output.drain():
                pass
        return self._status

    def close(self) -> None:
        """Kill, and give back the descriptors."""
        self.kill()
        self.channel.close()
        self.output.close()


class Zygote:
    """A running zygote and its standby: `runner()` hands out a process forked ahead of time and forks the next."""

    def __init__(self, folder: Path, *, interpret: bool, memory_limit: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "sandbox.zygote", str(theirs.fileno())],
                cwd=folder,
                env=clean_environment(folder, interpret=interpret),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = Channel(ours)
        self._control.sock.settimeout(ZYGOTE_START_S)
        self._memory_limit = memory_limit
        self.missing: dict[str, str] = self._expect("ready")["missing"]
        """Libraries that could not be imported, and why."""
        self._standby: Runner | None = self._fork()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def runner(self, *, deadline: float, cancelled: Callable[[], bool]) -> Runner:
        """The standby, with that deadline (time.monotonic) from now on; another is forked in its place.

        One that has died is no job's concern, and is replaced.
        """
        standby, self._standby = self._standby, None
        if standby is not None and not standby.alive:
            standby.close()
            standby = None
        runner = standby if standby is not None else self._fork()
        runner.deadline, runner.cancelled = deadline, cancelled
        try:
            self._standby = self._fork()
        except InfrastructureFault:
            runner.close()
            raise
        return runner

    def reap(self, pid: int) -> int:
        """The wait status of a runner that was killed; runners of a dead zygote were killed with it."""
        if not self.alive:
            return int(signal.SIGKILL)
        self._ask({"op": "reap", "pid": pid})
        return int(self._expect("reaped")["status"])

    def close(self) -> None:
        """Ends the zygote; every runner dies with it (PR_SET_PDEATHSIG)."""
        if self._standby is not None:
            self._standby.close()
            self._standby = None
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _fork(self) -> Runner:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            self._ask({"op": "fork"}, (theirs.fileno(), write_end))
            pid = int(self._expect("forked")["pid"])
        except InfrastructureFault:
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        return Runner(self, pid, Channel(ours), Output(read_end), self._memory_limit)

    def _ask(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        try:
            self._control.send(message, descriptors)
        except ChannelClosed as error:
            raise InfrastructureFault("the zygote is gone") from error

    def _expect(self, op: str) -> Message:
        try:
            answer = self._control.receive()
        except (ChannelClosed, TimeoutError) as error:
            raise InfrastructureFault("the zygote is gone or does not answer") from error
        if answer["op"] != op:
            raise InfrastructureFault(f"the zygote answered {answer['op']} instead of {op}")
        return answer


def _signal_name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return f"{known.get(number, f'signal {number}')} ({signal.strsignal(number)})"
