"""One process of the stack: started in its own group, read line by line, killed with all its descendants."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

READ_BYTES = 65_536
MAX_LINE = 16_384


@dataclass(frozen=True)
class Program:
    """A program to run.

    - `foundation`: stopped after all others.
    - `quiet`: its lines go to its own log only.
    - `drains`: it finishes its work when it is asked to stop.
    - `held`: descriptors that it inherits.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    folder: Path
    foundation: bool = False
    quiet: bool = False
    drains: bool = False
    held: tuple[int, ...] = ()


def _end_with_parent() -> None:
    # Runs between fork and exec, so it may only call a library that is loaded already.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(eq=False)
class Child:
    """A running program; `pipe` carries its stdout and stderr and does not block."""

    program: Program
    process: subprocess.Popen[bytes]
    started: float
    last_line: str = ""
    _partial: bytes = field(default=b"", repr=False)
    _recorded_descendants: set[psutil.Process] = field(default_factory=set, repr=False)

    @classmethod
    def start(cls, program: Program) -> Child:
        process = subprocess.Popen(
            program.command,
            env=program.environment,
            cwd=program.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=program.held,
            preexec_fn=_end_with_parent,
        )
        child = cls(program, process, time.monotonic())
        os.set_blocking(child.pipe, False)
        return child

    @property
    def pipe(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def read_lines(self) -> tuple[list[str], bool]:
        """The complete lines since the last call, and whether the pipe has ended."""
        ended = False
        try:
            data = os.read(self.pipe, READ_BYTES)
            ended = not data
        except BlockingIOError:
            data = b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if ended or len(self._partial) > MAX_LINE:
            lines, self._partial = [*lines, self._partial], b""
        texts = [line.decode(errors="replace").rstrip() for line in lines if line.strip()]
        if texts:
            self.last_line = texts[-1]
        return texts, ended

    def ask_to_stop(self) -> None:
        self._recorded_descendants |= self._descendants()
        if self.running:
            self.process.terminate()

    def kill(self) -> None:
        """Kills the process, its group, and its descendants of now and of the time when it was asked to stop."""
        below = self._recorded_descendants | self._descendants()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for descendant in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                descendant.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _descendants(self) -> set[psutil.Process]:
        try:
            return set(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return set()
