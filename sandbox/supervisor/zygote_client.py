"""The trusted end of the sandbox: starts a zygote and has it fork runners."""

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
from sandbox.isolation.process_tree import kill_user
from sandbox.protocol.channel import READY, Channel, ChannelClosed, Message
from sandbox.supervisor.captured_output import CapturedOutput
from sandbox.supervisor.process_register import ProcessRegister
from sandbox.supervisor.resource_watch import Usage
from sandbox.supervisor.runner_process import RunnerProcess

ZYGOTE_START_S = 120.0


class Zygote:
    """A running zygote; `runner()` forks a process from it.

    The folders of submissions lie below `folder`; `tools` are further paths that they may read and execute. `arch` is
    the GPU's ("sm_90"), or None on a host without a GPU, where Triton interprets. `register` records every forked
    process. Its folder has to outlive it. It dies with the thread that started it.
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
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "sandbox.runner.zygote", str(child_end.fileno())],
                cwd=folder,
                env=clean_environment(folder, interpret=arch is None),
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = Channel(parent_end)
        self._control.sock.settimeout(ZYGOTE_START_S)
        self._memory_limit = memory_limit
        self._register = register
        self.groups = cgroup.available()
        """Where its runners get their control groups; None where the worker may not create any."""
        self._ask({"op": "set_up", "arch": arch, "tools": [str(tool) for tool in tools]})
        ready = self._expect(READY)
        self._has_own_users = bool(ready["has_own_users"])
        self.children_use_gpu: bool = bool(ready["children_use_gpu"])
        """Whether programs that a runner starts can use the GPU, as a tool above a runner must."""
        self.uses_seccomp = bool(ready["uses_seccomp"])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def private_folder(self, folder: Path) -> Path:
        """Makes the folder for the runners of one submission, closed to all others if the host allows that."""
        return uid.private_folder(folder, own_user=self._has_own_users)

    def runner(
        self,
        folder: Path,
        *,
        gpu: bool,
        deadline: float,
        cancelled: Callable[[], bool],
        command: Sequence[str] = (),
    ) -> RunnerProcess:
        """Forks a process with that folder, and with the device if `gpu`, until the deadline (time.monotonic).

        `command` is a program that the process becomes, under the same confinement: a tool that starts a runner beneath
        it (`sandbox.runner.tool_entry`).
        """
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            message = {"op": "fork", "folder": str(folder), "gpu": gpu, "command": list(command)}
            self._ask(message, (child_end.fileno(), write_end))
            pid = int(self._expect("forked")["pid"])
        except InfrastructureFault:
            parent_end.close()
            os.close(read_end)
            raise
        finally:
            child_end.close()
            os.close(write_end)
        if self._register is not None:
            self._register.add(pid)
        usage = Usage(pid, folder, self._memory_limit)
        runner = RunnerProcess(self, pid, Channel(parent_end), CapturedOutput(read_end), usage, self._grouped(pid))
        runner.deadline, runner.cancelled = deadline, cancelled
        return runner

    def _grouped(self, pid: int) -> Cgroup | None:
        """The runner's own cgroup, joined before its first message; None where there are no cgroups."""
        if self.groups is None:
            return None
        try:
            group = self.groups.group(str(pid), self._memory_limit)
            with contextlib.suppress(ProcessLookupError):  # The runner has died; the launcher finds out next.
                group.add(pid)
        except OSError as error:
            raise InfrastructureFault(f"a runner could not be put into a cgroup: {error}") from error
        return group

    def reap(self, pid: int, user: int) -> int:
        """The wait status of a killed runner. The runners of a dead zygote died with it."""
        if not self.alive:
            if user != os.geteuid():
                kill_user(user)  # The runner's descendants may have survived.
            return int(signal.SIGKILL)
        self._ask({"op": "reap", "pid": pid, "user": user})
        return int(self._expect("reaped")["status"])

    def close(self) -> None:
        """Ends the zygote; every runner dies with it (PR_SET_PDEATHSIG)."""
        self._process.kill()
        self._process.wait()
        self._control.close()

    def _ask(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        try:
            self._control.send(message, descriptors)
        except ChannelClosed as error:
            raise InfrastructureFault("the zygote is gone") from error

    def _expect(self, op: str) -> Message:
        try:
            reply = self._control.receive()
        except (ChannelClosed, TimeoutError) as error:
            raise InfrastructureFault("the zygote is gone or does not answer") from error
        if reply["op"] != op:
            raise InfrastructureFault(f"the zygote answered {reply['op']} instead of {op}")
        return reply
