"""One untrusted process from outside: questions with a deadline, and every way of dying as somebody's fault."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Protocol

from domain.fault import InfrastructureFault, JobCancelled, KernelFault, NotStill
from domain.result import Status
from sandbox.isolation import oom_kills, process_tree
from sandbox.isolation.cgroup import Cgroup
from sandbox.protocol.channel import READY, Channel, ChannelClosed, Message, ProtocolError
from sandbox.supervisor.captured_output import Output
from sandbox.supervisor.fault_attribution import attributed
from sandbox.supervisor.process_freezer import Frozen, NotFrozen, freeze, thaw
from sandbox.supervisor.reported_fault import reported
from sandbox.supervisor.resource_watch import Usage

TICK_S = 0.05
HANG_UP_S = 0.5
FREEZE_S = 20.0
PROCESS_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP: the signal is for the whole group of a pidfd's process."""
BRINGS_A_SUBMISSION = ("build", "load")


class Parent(Protocol):
    """Whoever has forked it."""

    filters: bool
    """Whether its runners are kept from killing themselves (sandbox.isolation.seccomp)."""

    @property
    def alive(self) -> bool: ...

    def reap(self, pid: int, user: int) -> int:
        """Ends what is left of it; its wait status."""


class Runner:
    """One untrusted process. `request` is a question with a deadline; every way of dying becomes a KernelFault."""

    def __init__(
        self, zygote: Parent, pid: int, channel: Channel, output: Output, usage: Usage, group: Cgroup | None
    ) -> None:
        self.pid = pid
        self.channel = channel
        self.output = output
        self.deadline = float("inf")
        self.cancelled: Callable[[], bool] = lambda: False
        self._zygote = zygote
        self._usage = usage
        self._group = group
        self._status: int | None = None
        self._entered = False
        self._ready = False
        self._posted = 0
        self._memory_kills: int | None = None
        self._frozen: Frozen | None = None
        self._pidfd = os.pidfd_open(pid)

    def lend(self, descriptor: int) -> None:
        """The memory behind it is the referee's, and not counted as the runner's."""
        self._usage.lent.add(descriptor)

    def request(self, message: Message, descriptors: tuple[int, ...] = ()) -> Message:
        """Sends a message and waits for the answer; raises KernelFault when it is a fault or never comes."""
        self.send(message, descriptors)
        return self.answer()

    def post(self, message: Message) -> None:
        """Sends a message that is answered without a word to tell: looked at with the next answer."""
        self.send(message)
        self._posted += 1

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message without waiting for more than that the runner reads; at the deadline it is killed."""
        if self._status is not None:
            raise KernelFault(Status.CRASHED, "the kernel's process had been stopped before")
        if message["op"] in BRINGS_A_SUBMISSION and not self._entered:
            self._memory_kills = self._count_memory_kills()
            self._usage.begin()
        try:
            self.channel.send(message, descriptors, self._until_it_reads)
        except ChannelClosed:
            raise self._attributed(self._death()) from None
        except ProtocolError as error:  # Whatever is long in it, a submission has made.
            raise KernelFault(Status.UNSUPPORTED, f"its process cannot be told that much at once: {error}") from error
        self._entered = self._entered or message["op"] in BRINGS_A_SUBMISSION

    def answer(self, within: float | None = None) -> Message:
        """The next answer. After `within` seconds TimeoutError, the runner goes on; at the deadline it is killed.

        What it takes over posted messages does not count. Whose posted message failed is stopped: it may still answer
        what was sent behind that, and would be taken to answer what it is asked next.
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
            raise KernelFault(
                Status.CRASHED, f"the runner answered with something that is no message: {error}"
            ) from error
        self._posted = max(self._posted - 1, 0)
        if message["op"] == "fault":
            raise self._attributed(reported(message))
        return message

    def _wait(self, until: float | None) -> Message:
        self.channel.sock.setblocking(False)
        try:
            while (message := self._heard()) is None:
                channel = self.channel.fileno()
                patience = TICK_S if until is None else min(max(until - time.monotonic(), 0.0), TICK_S)
                heard, _, _ = select.select([channel, self.output.fileno(), self._pidfd], [], [], patience)
                if self._pidfd in heard and channel not in heard:
                    raise ChannelClosed("it is gone, and what it has started keeps its end open")
                now = time.monotonic()
                self._watch(now, idle=not heard)
                if until is not None and now > until:
                    raise TimeoutError
        finally:
            self.channel.sock.setblocking(True)
        return message

    def _heard(self) -> Message | None:
        """The next message, if it is there; the first one only says that the runner is ready."""
        message = self.channel.poll(awake=True)
        if message is None or self._ready or message["op"] != READY:
            return message
        self._ready = True
        return self.channel.poll(awake=True)

    def _has_begun(self) -> bool:
        """Whether it was sent a submission and was ready for it."""
        if self._entered and not self._ready:
            with contextlib.suppress(ChannelClosed, ProtocolError):
                self._heard()
        return self._entered and self._ready

    def _until_it_reads(self) -> None:
        """Waits a moment for a runner that has not read what was sent to it before."""
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

    @property
    def alive(self) -> bool:
        return self._status is None and not select.select([self._pidfd], [], [], 0)[0]

    def _death(self) -> KernelFault:
        """The fault of a runner that is gone; raises InfrastructureFault where that is no submission's doing:
        where its zygote went first, where it had not begun on a submission, and where somebody else killed it.
        """
        # What it has on a GPU may take seconds to be torn down; how it ended stands before that.
        ended = select.select([self._pidfd], [], [], HANG_UP_S)[0] or process_tree.exiting(self.pid)
        counted = self._count_memory_kills()  # Its group goes with it.
        begun = self._has_begun()
        status = self.kill()
        # Only now: a runner may be seen dead a moment before the zygote that takes it along.
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
        """Of a SIGKILL that was not ours; raises InfrastructureFault for one that was not the submission's doing."""
        if not self._zygote.filters or counted is None:
            told = "killed (SIGKILL): too much memory, or its own doing, which this machine cannot tell apart"
            return KernelFault(Status.OUT_OF_MEMORY, f"the kernel's process was {told}")
        if counted != self._memory_kills:
            return KernelFault(Status.OUT_OF_MEMORY, "the kernel's process was killed by the system: too much memory")
        raise InfrastructureFault("a runner with a submission was killed (SIGKILL), and not for want of memory")

    def _attributed(self, fault: KernelFault) -> KernelFault:
        """As `sandbox.supervisor.fault_attribution`. Raises InfrastructureFault."""
        if not self._entered:
            return fault
        counts = (self._memory_kills, self._count_memory_kills())
        try:
            return attributed(fault, self._usage, memory_kill=None not in counts and counts[0] != counts[1])
        except InfrastructureFault:
            self.kill()
            raise

    def _count_memory_kills(self) -> int | None:
        """In its own group, else on the whole machine: then another's may be taken for its own."""
        own = self._group.memory_kills() if self._group is not None else None
        return oom_kills.count(oom_kills.MACHINE) if own is None else own

    def freeze(self) -> int:
        """Stops it and all that it has started, until `thaw`; returns from when on (time.perf_counter_ns) none ran.

        Raises NotStill for processes that do not stop.
        """
        try:
            frozen = freeze(self.pid, FREEZE_S, self._pidfd)
        except NotFrozen:
            self.kill()
            raise NotStill("the kernel's processes could not be stopped for a moment") from None
        self._frozen = frozen
        return frozen.since_ns

    def check_frozen(self) -> None:
        """Raises NotStill where it was to stand still, and has run."""
        if self._frozen is not None and not self._frozen.stayed:
            self.kill()
            raise NotStill("the kernel's processes did not stay stopped while they were to")

    def thaw(self) -> None:
        """Lets what was frozen go on."""
        if self._frozen is not None:
            thaw(self.pid, self._frozen.pids, self._pidfd)
            self._frozen = None

    def hang_up(self) -> None:
        """Closes the conversation and waits for the process to come to its own end; at the deadline it is killed.

        Raises KernelFault (TIMEOUT, OUT_OF_MEMORY), JobCancelled.
        """
        self.channel.close()
        watched = [self._pidfd, self.output.fileno()]
        while self.alive:
            select.select(watched, [], [], TICK_S)
            if not self.output.drain():
                watched = [self._pidfd]  # Nobody is left who could print: that is no reason to look at once again.
            self._watch(time.monotonic(), idle=True)
        self.kill()

    def printed(self) -> str:
        """What it has printed so far. In one read, as a pipe holds no more: what it started may write for ever."""
        self.output.drain()
        return self.output.text()

    def stop(self) -> None:
        """Sends the signals that end the runner and its session, and does not wait: `kill` does."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):  # forked a moment ago, not yet in a session of its own
                self._end_group()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            if self._group is not None:
                self._group.end()

    def _end_group(self) -> None:
        """Kills its process group; raises ProcessLookupError where there is none."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL, None, PROCESS_GROUP)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Linux before 6.9 only knows the number. The zygote keeps that taken until it is asked to reap the runner.
            if self._zygote.alive:
                os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> int:
        """Ends the runner and everything it started; returns its wait status. Safe to call again.

        A runner that has died by itself keeps its own status: a signal to a zombie changes nothing.
        """
        if self._status is None:
            self.stop()
            self._status = self._zygote.reap(self.pid, self._usage.user)
            self._frozen = None  # Its numbers may be others' from now on.
            os.close(self._pidfd)
            if self._group is not None:
                self._group.close()
            while select.select([self.output], [], [], 0)[0] and self.output.drain():
                pass
        return self._status

    def close(self) -> None:
        """Kill, and give back the descriptors."""
        self.kill()
        self.channel.close()
        self.output.close()


def _signal_name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return f"{known.get(number, f'signal {number}')} ({signal.strsignal(number)})"
