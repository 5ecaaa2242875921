"""Keeps the stack's processes running, writes down their lines, and leaves none behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import time
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from stack.child import Child, Program

PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""A process that ran this long had started well: its next restart is prompt again."""

SWEEP_S = 10.0
SLICE_S = 0.05
OURS = "stack"


class Lines(Protocol):
    """Where the processes' lines go."""

    def line(self, name: str, text: str, *, quiet: bool = False) -> None: ...


@dataclass(eq=False)
class _Slot:
    """One program's place: its running process, or when the next try is due."""

    program: Program
    child: Child | None = None
    pause: float = FIRST_PAUSE_S
    due: float = 0.0


@dataclass
class Supervisor:
    """Starts programs, restarts what dies, stops all. One thread: nothing happens but in `start`, `tick` and `stop`."""

    log: Lines
    drain_s: float = 6.0
    """What a program that is asked to stop may take: a worker finishes the jobs that it runs."""
    deaths: dict[str, int] = field(default_factory=dict)
    """How often each program has ended without being asked to."""
    _slots: list[_Slot] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __post_init__(self) -> None:
        # What outlives its parent below us becomes our child, so that `stop` finds it.
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, program: Program) -> None:
        slot = _Slot(program)
        self._slots.append(slot)
        self._launch(slot)

    def tick(self, seconds: float) -> None:
        """Passes on lines for about that long, then restarts what has died."""
        deadline = time.monotonic() + seconds
        self._listen(seconds)
        while (left := deadline - time.monotonic()) > 0:
            self._listen(left)
        for slot in self._slots:
            self._look_after(slot)
        self._collect_orphans()

    def stop(self) -> None:
        """Stops every program, foundations last; afterwards this process has no descendants.

        Each is asked, has `drain_s` seconds, and is then killed with all that it has started.
        """
        self._stop([slot for slot in self._slots if not slot.program.foundation])
        self._stop([slot for slot in self._slots if slot.program.foundation])
        self._slots.clear()
        self._sweep()
        self._selector.close()

    def _stop(self, slots: list[_Slot]) -> None:
        children = [slot.child for slot in slots if slot.child is not None]
        for child in children:
            child.ask_to_stop()
        deadline = time.monotonic() + self.drain_s
        while any(child.running for child in children) and time.monotonic() < deadline:
            self._listen(SLICE_S)
        for child in children:
            child.kill()
            self._forget(child)

    def _sweep(self) -> None:
        # Again until none is left: a process that is being killed may have made another just before.
        deadline = time.monotonic() + SWEEP_S
        while left := psutil.Process().children(recursive=True):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
            if time.monotonic() > deadline:
                self.log.line(OURS, f"these processes do not end, not even when killed: {left}")
                return

    def _launch(self, slot: _Slot) -> None:
        slot.child = Child.start(slot.program)
        self._selector.register(slot.child.pipe, selectors.EVENT_READ, slot.child)

    def _listen(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            self._pass_on(key.data)

    def _pass_on(self, child: Child) -> None:
        lines, ended = child.read_lines()
        for line in lines:
            self.log.line(child.program.name, line, quiet=child.program.quiet)
        if ended:
            self._selector.unregister(child.pipe)

    def _look_after(self, slot: _Slot) -> None:
        if slot.child is None:
            if time.monotonic() >= slot.due:
                self._launch(slot)
            return
        if slot.child.running:
            return
        name, status = slot.program.name, slot.child.process.returncode
        self.deaths[name] = self.deaths.get(name, 0) + 1
        slot.child.kill()
        self._forget(slot.child)
        lived = time.monotonic() - slot.child.started
        slot.pause = FIRST_PAUSE_S if lived > STEADY_S else min(slot.pause * 2, LONGEST_PAUSE_S)
        slot.due = time.monotonic() + slot.pause
        slot.child = None
        self.log.line(OURS, f"{name} ended with status {status}; it is started again in {slot.pause:g} s")

    def _forget(self, child: Child) -> None:
        if child.pipe in self._selector.get_map():
            self._pass_on(child)
        if child.pipe in self._selector.get_map():
            self._selector.unregister(child.pipe)
        child.close()

    def _collect_orphans(self) -> None:
        """Reaps what our descendants left behind and has ended."""
        own = {slot.child.process.pid for slot in self._slots if slot.child is not None}
        for process in psutil.Process().children():
            if process.pid not in own:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
