"""Supervises one untrusted process: requests with a deadline, and an attributed fault for every way of dying."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Protocol

from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from domain.result import Status
from sandbox.isolation import oom_kills, process_tree
from sandbox.isolation.cgroup import Cgroup
from sandbox.protocol.channel import READY, Channel, ChannelClosed, Message, ProtocolError, byte_count
from sandbox.supervisor.captured_output import CapturedOutput
from sandbox.supervisor.fault_attribution import attribute
from sandbox.supervisor.process_freezer import freeze, thaw
from sandbox.supervisor.reported_fault import parse_fault
from sandbox.supervisor.resource_watch import Usage

TICK_S = 0.05
EXIT_WAIT_S = 0.5
STOP_S, STOP_POLL_S = 20.0, 20e-6
PROCESS_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP: send the signal to the whole process group."""
SUBMISSION_OPS = ("build", "load")


class Parent(Protocol):
    uses_seccomp: bool
    """Whether seccomp keeps its runners from killing themselves."""

    @property
    def alive(self) -> bool: ...

    def reap(self, pid: int, user: int) -> int:
        """Kills what is left of it; returns its wait status."""


class RunnerProcess:
    """One untrusted process. A request has a deadline, and every way of dying becomes a KernelFault."""

    def __init__(
        self, zygote: Parent, pid: int, channel: Channel, output: CapturedOutput, usage: Usage, group: Cgroup | None
    ) -> None:
        self.pid = pid
        self.channel = channel
        self.output = output
        self.deadline = float("inf")
        self.cancelled: Callable[[], bool] = lambda: False
        self.freed: list[tuple[float, int]] = []
        """When (time.monotonic) it freed how many bytes of device memory, by its replies."""
        self._zygote = zygote
        self._usage = usage
        self._group = group
        self._status: int | None = None
        self._entered = False
        self._ready = False
        self._posted = 0
        self._memory_kills: int | None = None
        self._frozen: frozenset[int] = frozenset()
        self._pidfd = os.pidfd_open(pid)

    def exempt(self, descriptor: int) -> None:
        """Does not count the memory of that descriptor as the runner's: the referee shares it."""
        self._usage.exempt.add(descriptor)

    def request(self, message: Message, descriptors: tuple[int, ...] = ()) -> Message:
        """Sends a message and waits for the reply; raises KernelFault if that is a fault or never comes."""
        self.send(message, descriptors)
        return self.receive()

    def post(self, message: Message) -> None:
        """Sends a message whose reply carries no data; the reply is checked before the next one."""
        self.send(message)
        self._posted += 1

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message and waits only until the runner reads it; kills the runner at the deadline."""
        if self._status is not None:
            raise KernelFault(Status.CRASHED, "the kernel's process was stopped before this request")
        if message["op"] in SUBMISSION_OPS and not self._entered:
            self._memory_kills = self._count_memory_kills()
            self._usage.begin()
        try:
            self.channel.send(message, descriptors, self._until_it_reads)
        except ChannelClosed:
            raise self._attributed(self._death()) from None
        except ProtocolError as error:  # Only a submission's content can make a message too long.
            raise KernelFault(Status.UNSUPPORTED, f"the request is too large for one message: {error}") from error
        self._entered = self._entered or message["op"] in SUBMISSION_OPS

    def receive(self, within: float | None = None) -> Message:
        """The next reply. Raises TimeoutError after `within` seconds, and kills the runner at its deadline.

        The time for replies to posted messages is not limited by `within`. If a posted message failed, the runner is
        killed: its later replies would be taken for replies to other requests.
        """
        while self._posted:
            try:
                self._next(None)
            except KernelFault:
                self.kill()
                raise
        return self._next(within)

    def _next(self, within: float | None) -> Message:
        try:
            message = self._wait(time.monotonic() + within if within is not None else None)
        except ChannelClosed:
            raise self._attributed(self._death()) from None
        except ProtocolError as error:
            self.kill()
            raise KernelFault(Status.CRASHED, f"the runner sent a malformed message: {error}") from error
        self._posted = max(self._posted - 1, 0)
        if freed := byte_count(message.get("freed")):
            self.freed.append((time.monotonic(), freed))
        if message["op"] == "fault":
            raise self._attributed(parse_fault(message))
        return message

    def _wait(self, until: float | None) -> Message:
        self.channel.sock.setblocking(False)
        try:
            while (message := self._next_message()) is None:
                channel = self.channel.fileno()
                patience = TICK_S if until is None else min(max(until - time.monotonic(), 0.0), TICK_S)
                readable, _, _ = select.select([channel, self.output.fileno(), self._pidfd], [], [], patience)
                if self._pidfd in readable and channel not in readable:
                    raise ChannelClosed("it is gone, and what it has started keeps its end open")
                now = time.monotonic()
                self._watch(now, idle=not readable)
                if until is not None and now > until:
                    raise TimeoutError
        finally:
            self.channel.sock.setblocking(True)
        return message

    def _next_message(self) -> Message | None:
        """The next message, if it has come; skips the first one, which only says that the runner is ready."""
        message = self.channel.poll(awake=True)
        if message is None or self._ready or message["op"] != READY:
            return message
        self._ready = True
        return self.channel.poll(awake=True)

    def _has_begun(self) -> bool:
        """Whether it was ready and has received a submission."""
        if self._entered and not self._ready:
            with contextlib.suppress(ChannelClosed, ProtocolError):
                self._next_message()
        return self._entered and self._ready

    def _until_it_reads(self) -> None:
        """Waits a moment for a runner that has not read earlier messages yet."""
        gone, ready, _ = select.select([self._pidfd], [self.channel.fileno()], [], TICK_S)
        if gone and not ready:
            raise ChannelClosed("it is gone, and what it has started keeps its end open")
        self._watch(time.monotonic(), idle=not ready)

    def _watch(self, now: float, *, idle: bool) -> None:
        self.output.drain()
        if now > self.deadline:
            late = "timed out: the kernel was stopped at its deadline; raise `timeout` or do less"
            fault = self._attributed(KernelFault(Status.TIMEOUT, late))
            self.kill()
            raise fault
        if self.cancelled():
            self.kill()
            raise JobCancelled
        try:
            self._usage.check(now, idle=idle)
        except KernelFault:
            self.kill()
            raise

    def end_submission(self) -> None:
        """Until the next `load` no submission is at fault for what becomes of the process."""
        self._entered = False

    @property
    def has_descendants(self) -> bool:
        """Whether it has started processes that still run."""
        return process_tree.with_descendants(self.pid) != {self.pid}

    @property
    def alive(self) -> bool:
        return self._status is None and not select.select([self._pidfd], [], [], 0)[0]

    def _death(self) -> KernelFault:
        """The fault of a runner that is gone.

        Raises InfrastructureFault if the submission did not cause the death: the zygote died first, the runner had not
        begun on a submission, or another process killed it.
        """
        # The driver may take seconds to release its GPU memory; the exit status is known before that.
        ended = select.select([self._pidfd], [], [], EXIT_WAIT_S)[0] or process_tree.exiting(self.pid)
        counted = self._count_memory_kills()  # Read now: killing the runner removes its group.
        begun = self._has_begun()
        status = self.kill()
        # Checked last: a runner may die a moment before the zygote's death becomes visible.
        if not self._zygote.alive:
            raise InfrastructureFault("the zygote died, and the runner with it")
        if not begun:
            printed = self.output.text().strip().splitlines()[-1:]
            raise InfrastructureFault(": ".join(["a runner died before it had a submission", *printed]))
        if not ended:
            return KernelFault(
                Status.CRASHED, "the kernel's process closed its connection to the referee and was stopped"
            )
        if not os.WIFSIGNALED(status):
            code = os.waitstatus_to_exitcode(status)
            return KernelFault(Status.CRASHED, f"the kernel's process exited with code {code} before it was done")
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            return self._killed(counted)
        return KernelFault(Status.CRASHED, f"the kernel's process crashed: {_signal_name(number)}")

    def _killed(self, counted: int | None) -> KernelFault:
        """The fault for a SIGKILL from elsewhere; raises InfrastructureFault if the submission did not cause it."""
        if not self._zygote.uses_seccomp or counted is None:
            reason = "killed (SIGKILL): it used too much memory or killed itself, which this machine cannot tell apart"
            return KernelFault(Status.OUT_OF_MEMORY, f"the kernel's process was {reason}")
        if counted != self._memory_kills:
            return KernelFault(Status.OUT_OF_MEMORY, "the kernel's process was killed by the system: too much memory")
        raise InfrastructureFault("a runner with a submission was killed (SIGKILL), and not for want of memory")

    def _attributed(self, fault: KernelFault) -> KernelFault:
        """The fault as `sandbox.supervisor.fault_attribution` attributes it. Raises InfrastructureFault."""
        if not self._entered:
            return fault
        counts = (self._memory_kills, self._count_memory_kills())
        try:
            return attribute(fault, self._usage, memory_kill=None not in counts and counts[0] != counts[1])
        except InfrastructureFault:
            self.kill()
            raise

    def _count_memory_kills(self) -> int | None:
        """OOM kills in its own group, else on the whole machine, where another process's kill may count as its own."""
        own = self._group.memory_kills() if self._group is not None else None
        return oom_kills.oom_kill_count(oom_kills.MACHINE) if own is None else own

    def freeze(self) -> None:
        """Stops the process and its descendants until `thaw`.

        It has at least STOP_S for that: the deadline may have passed between two requests. Raises KernelFault (TIMEOUT,
        OUT_OF_MEMORY), JobCancelled.
        """
        deadline, self.deadline = self.deadline, max(self.deadline, time.monotonic() + STOP_S)
        self._frozen = freeze(self.pid, self._pidfd, self._wait_for_stop)
        self.deadline = deadline

    def _wait_for_stop(self) -> None:
        self._watch(time.monotonic(), idle=True)
        time.sleep(STOP_POLL_S)

    def thaw(self) -> None:
        """Lets frozen processes continue."""
        if self._frozen:
            thaw(self.pid, self._frozen, self._pidfd)
            self._frozen = frozenset()

    def close_and_wait(self) -> None:
        """Closes the channel and waits until the process exits by itself; kills it at the deadline.

        Raises KernelFault (TIMEOUT, OUT_OF_MEMORY), JobCancelled.
        """
        self.channel.close()
        watched = [self._pidfd, self.output.fileno()]
        while self.alive:
            select.select(watched, [], [], TICK_S)
            if not self.output.drain():
                watched = [self._pidfd]  # No process can print any more, and a closed pipe would wake `select` at once.
            self._watch(time.monotonic(), idle=True)
        self.kill()

    def printed(self) -> str:
        """The output so far. Reads once, because a pipe holds no more: descendants may print for ever."""
        self.output.drain()
        return self.output.text()

    def stop(self) -> None:
        """Sends the signals that end the runner and its session, without waiting; `kill` waits."""
        if self._status is None:
            # It was forked a moment ago and is not in a session of its own yet.
            with contextlib.suppress(ProcessLookupError):
                self._end_group()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            if self._group is not None:
                self._group.end()

    def _end_group(self) -> None:
        """Kills its process group; raises ProcessLookupError if there is none."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL, None, PROCESS_GROUP)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Before Linux 6.9 the kernel takes only the number, which the zygote keeps until it reaps the runner.
            if self._zygote.alive:
                os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> int:
        """Kills the runner and everything it started; returns its wait status. Safe to call again.

        A runner that died by itself keeps its own status: signals to a zombie have no effect.
        """
        if self._status is None:
            self.stop()
            self._status = self._zygote.reap(self.pid, self._usage.user)
            self._frozen = frozenset()  # Other processes may get its pids from now on.
            os.close(self._pidfd)
            if self._group is not None:
                self._group.close()
            while select.select([self.output], [], [], 0)[0] and self.output.drain():
                pass
        return self._status

    def close(self) -> None:
        """Kills it and closes the descriptors."""
        self.kill()
        self.channel.close()
        self.output.close()


def _signal_name(number: int) -> str:
    names = {member.value: member.name for member in signal.Signals}
    return f"{names.get(number, f'signal {number}')} ({signal.strsignal(number)})"
