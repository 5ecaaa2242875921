"""The trusted end of the sandbox: starts a zygote, and has it fork runners."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from domain.fault import InfrastructureFault
from sandbox.isolation import cgroup, uid
from sandbox.isolation.cgroup import Cgroup
from sandbox.isolation.clean_env import clean_environment
from sandbox.isolation.process_tree import end_all_of
from sandbox.protocol.channel import READY, Channel, ChannelClosed, Message
from sandbox.runner.zygote import HOST
from sandbox.supervisor.captured_output import Output
from sandbox.supervisor.process_register import ProcessRegister
from sandbox.supervisor.resource_watch import Usage
from sandbox.supervisor.runner_process import Runner

ZYGOTE_START_S = 120.0


class Zygote:
    """A running zygote: `runner()` hands out a process that it has forked.

    `folder` is where strangers' folders lie, `tools` are more that they may read and execute from. `arch` is the GPU's
    ("sm_90"), None on a host without one, where Triton interprets. `register` is where what it forks is noted.
    """

    def __init__(
        self,
        folder: Path,
        *,
        arch: str | None,
        memory_limit: int,
        tools: Sequence[Path] = (),
        register: ProcessRegister | None = None,
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "sandbox.runner.zygote", str(theirs.fileno())),
                    *(arch or HOST, *map(str, tools)),
                ],
                cwd=folder,
                env=clean_environment(folder, interpret=arch is None),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = Channel(ours)
        self._control.sock.settimeout(ZYGOTE_START_S)
        self._memory_limit = memory_limit
        self._register = register
        self._groups = cgroup.found()
        ready = self._expect(READY)
        self.missing: dict[str, str] = ready["missing"]
        """Libraries that could not be imported, and why."""
        self._gives_users = bool(ready["gives_users"])
        self.starts_others: bool = bool(ready["starts_others"])
        """Whether programs that a runner starts can use the GPU: those of a tool beneath which it runs, say."""
        self.filters = bool(ready["filters"])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def private_folder(self, folder: Path) -> Path:
        """Makes the folder for the runners of one submission: nobody else's, where the host allows that."""
        return uid.private_folder(folder, own_user=self._gives_users)

    def runner(
        self,
        folder: Path,
        *,
        gpu: bool,
        deadline: float,
        cancelled: Callable[[], bool],
        command: Sequence[str] = (),
    ) -> Runner:
        """A process that has that folder, and the device where `gpu`, until the deadline (time.monotonic).

        `command` is a program for it to become, as confined as a runner: a tool that starts the runner beneath it
        (`sandbox.runner.tool_entry`).
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            message = {"op": "fork", "folder": str(folder), "gpu": gpu, "command": list(command)}
            self._ask(message, (theirs.fileno(), write_end))
            pid = int(self._expect("forked")["pid"])
        except InfrastructureFault:
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        if self._register is not None:
            self._register.add(pid)
        usage = Usage(pid, folder, self._memory_limit)
        runner = Runner(self, pid, Channel(ours), Output(read_end), usage, self._grouped(pid))
        runner.deadline, runner.cancelled = deadline, cancelled
        return runner

    def _grouped(self, pid: int) -> Cgroup | None:
        """The runner in a group of its own, while it waits for its first message; None where there are no groups."""
        if self._groups is None:
            return None
        try:
            group = self._groups.group(str(pid), self._memory_limit)
            with contextlib.suppress(ProcessLookupError):  # It has died, which its launcher is about to find out.
                group.add(pid)
        except OSError as error:
            raise InfrastructureFault(f"a runner could not be put into a cgroup: {error}") from error
        return group

    def reap(self, pid: int, user: int) -> int:
        """The wait status of a runner that was killed; runners of a dead zygote were killed with it."""
        if not self.alive:
            if user != os.geteuid():
                end_all_of(user)  # What a runner had started is not.
            return int(signal.SIGKILL)
        self._ask({"op": "reap", "pid": pid, "user": user})
        return int(self._expect("reaped")["status"])

    def close(self) -> None:
        """Ends the zygote; every runner dies with it (PR_SET_PDEATHSIG)."""
        self._control.close()
        self._process.kill()
        self._process.wait()

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
