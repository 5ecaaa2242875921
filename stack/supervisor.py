"""Keeps the stack's processes running, writes their lines, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from sandbox.isolation.rlimits import keep_descendants
from stack.child import Child, Program

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""Time, in s, after which a process counts as started: its next restart is immediate again."""

SWEEP_S = 10.0
SLICE_S = 0.05
STACK_NAME = "stack"


class Lines(Protocol):
    def line(self, name: str, text: str, *, quiet: bool = False) -> None: ...


@dataclass(eq=False)
class _Slot:
    """A program, and its running process or the time of its next start."""

    program: Program
    child: Child | None = None
    pause: float = FIRST_PAUSE_S
    due: float = 0.0

    @property
    def ended(self) -> bool:
        return self.child is None or not self.child.running


@dataclass
class Supervisor:
    """Starts programs, restarts those that die, stops all. It acts only in `start`, `tick` and `stop`."""

    log: Lines
    grace_s: float = 6.0
    """Maximum time for a program to stop when asked, in s, unless it is drained."""
    deaths: dict[str, int] = field(default_factory=dict)
    """How often each program has ended by itself."""
    _slots: list[_Slot] = field(default_factory=list)
    _drains: bool = False
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __post_init__(self) -> None:
        # Orphaned descendants become children of this process, so that `stop` finds them.
        keep_descendants()

    def start(self, program: Program) -> None:
        slot = _Slot(program)
        self._slots.append(slot)
        self._launch(slot)

    def tick(self, seconds: float) -> None:
        """Passes on lines for about `seconds`, then restarts programs that have died."""
        deadline = time.monotonic() + seconds
        self._listen(seconds)
        while (left := deadline - time.monotonic()) > 0:
            self._listen(left)
        for slot in self._slots:
            if not (self._drains and slot.program.drains):
                self._look_after(slot)
        self._collect_orphans()

    @property
    def draining(self) -> list[Program]:
        """Programs that drain and have not ended yet; before `ask_to_drain`, all programs that will drain."""
        return [slot.program for slot in self._slots if slot.program.drains and not (self._drains and slot.ended)]

    def ask_to_drain(self) -> None:
        """Asks those programs to stop, and does not restart them; `tick` still handles the others."""
        self._drains = True
        for slot in self._slots:
            if slot.program.drains and slot.child is not None:
                slot.child.ask_to_stop()

    def end_draining(self) -> None:
        """Kills those that have not ended, and their descendants."""
        slots = [slot for slot in self._slots if slot.program.drains]
        for slot in slots:
            self._kill(slot)
            self._slots.remove(slot)

    def stop(self) -> None:
        """Stops every program, foundations last; afterwards this process has no descendants.

        Each program is asked to stop, has `grace_s` seconds, and is then killed with all its descendants.
        """
        self._stop([slot for slot in self._slots if not slot.program.foundation])
        self._stop([slot for slot in self._slots if slot.program.foundation])
        self._slots.clear()
        self._sweep()
        self._selector.close()

    def _stop(self, slots: list[_Slot]) -> None:
        for slot in slots:
            if slot.child is not None:
                slot.child.ask_to_stop()
        deadline = time.monotonic() + self.grace_s
        while not all(slot.ended for slot in slots) and time.monotonic() < deadline:
            self._listen(SLICE_S)
        for slot in slots:
            self._kill(slot)

    def _kill(self, slot: _Slot) -> None:
        if slot.child is not None:
            slot.child.kill()
            self._unregister(slot.child)
            slot.child = None

    def _sweep(self) -> None:
        # Repeats until none is left: a process may fork while it is being killed.
        deadline = time.monotonic() + SWEEP_S
        while left := psutil.Process().children(recursive=True):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
            if time.monotonic() > deadline:
                self.log.line(STACK_NAME, f"these processes do not end, not even when killed: {left}")
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
        name, child = slot.program.name, slot.child
        self.deaths[name] = self.deaths.get(name, 0) + 1
        lived = time.monotonic() - child.started
        self._kill(slot)
        slot.pause = FIRST_PAUSE_S if lived > STEADY_S else min(slot.pause * 2, LONGEST_PAUSE_S)
        slot.due = time.monotonic() + slot.pause
        how = f"{name} ended with status {child.process.returncode}"
        # The console has not shown a quiet program's lines, and the last one mostly says why.
        why = f", after the line {child.last_line!r}" if slot.program.quiet and child.last_line else ""
        self.log.line(STACK_NAME, f"{how}{why}; it is started again in {slot.pause:g} s")

    def _unregister(self, child: Child) -> None:
        if child.pipe in self._selector.get_map():
            self._pass_on(child)
        if child.pipe in self._selector.get_map():
            self._selector.unregister(child.pipe)
        child.close()

    def _collect_orphans(self) -> None:
        """Reaps orphaned descendants that have ended."""
        own = {slot.child.process.pid for slot in self._slots if slot.child is not None}
        for process in psutil.Process().children():
            if process.pid not in own:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
