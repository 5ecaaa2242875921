"""Runs a source in a process of its own where the target's GPU is pretended, and reports what it compiled.

The source may crash, hang or exit there, or ask for what fake tensors do not have: the dry run then ends, what was
compiled is kept, and the run compiles the rest. A compiler's error is the kernel's fault only if nothing that led
there was pretended: no guess about the card, and no operation that failed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import select
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from backends.base import Task
from backends.dry_run.fake_tensors import fake_world
from backends.dry_run.pretended_cuda import pretend_cuda
from backends.dry_run.pretended_dlpack import pretend_dlpack
from backends.dry_run.pretended_triton import pretend_triton
from backends.extensions.jit_build import FOLDER, ExtensionCalled, Extensions
from backends.languages import registry
from backends.languages.language import Unfollowed
from backends.source.error_report import summary
from domain.fault import KernelFault, may_pass_again
from domain.result import Status

PATIENCE_S = 10
"""Maximum processor time that a source may take before, between and after what it compiles, in s. Without content
nothing is computed; an import of a language takes some seconds."""
IDLE_S = 30
"""The same on the clock, in s: for a source that waits."""
MAX_REPORT_BYTES = 4 << 20
CACHE_FOLDERS = (FOLDER, "triton", *registry.CACHES)
"""Folders below the job's folder that hold what the run will load."""
COMPLETED, STOPPED, OUT_OF_TIME, DIED = "completed", "stopped", "out_of_time", "died"


@dataclass
class DryRun:
    """The result of a dry run.

    `ended` is a code, `reason` says why it did not complete. `fault` is a compiler's error that the run would end in,
    too. `entry` is what it called, None if it did not find that; `example` the inputs that it used, if they were asked.
    """

    compiled: list[str] = field(default_factory=list)
    ended: str = DIED
    reason: str | None = None
    fault: KernelFault | None = None
    entry: str | None = None
    example: Any = None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for the result; JSON-ready."""
        return {"compiled": self.compiled, "ended": self.ended, "reason": self.reason}


class World:
    """A dry run's side of the pipe to the builder. `uncertain` says why a compiler's error may not be the run's."""

    def __init__(self, pipe: int, extensions: Extensions) -> None:
        self._pipe = pipe
        self._extensions = extensions
        self.uncertain: str | None = None

    def tell(self, **report: Any) -> None:
        line = json.dumps(report).encode() + b"\n"
        while line:
            line = line[os.write(self._pipe, line) :]

    def enter(self, arch: str, source: str) -> contextlib.AbstractContextManager[None]:
        """Pretends the GPU from now on, to the languages that the source imports too, with fake tensors in a block."""
        properties = pretend_cuda(arch, self.note_uncertain)
        pretend_triton(arch, properties, self._compile)
        self._extensions.build_ahead = lambda name, build: self._compile(f"extension {name}", build)
        torch.compile = _not_compiled
        for language in registry.imported(source):
            if language.pretend is not None:
                pretend_dlpack()
                language.pretend(arch, self._compile)
        return fake_world(lambda error: self.note_uncertain(summary(error)))

    def note_uncertain(self, reason: str) -> None:
        """Notes that the source's way from here on may not be the run's."""
        self.uncertain = self.uncertain or reason

    def _compile(self, name: str, compile_it: Callable[[], Any]) -> Any:
        _limit(0, 0)
        try:
            compiled = compile_it()
        finally:
            _limit(PATIENCE_S, IDLE_S)
        self.tell(compiled=name)
        return compiled


def dry_run(extensions: Extensions, task: Task, follow: Callable[[World], None]) -> DryRun:
    """Has a child process `follow` the source, within the task's bounds. Files that it makes elsewhere are removed."""
    there = set(_files(extensions.folder))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The warning concerns threads, and the child has none.
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            # Its compilers inherit the bound. Without it the referee would stop the whole builder for lack of memory.
            resource.setrlimit(resource.RLIMIT_DATA, (task.memory_bytes, task.memory_bytes))
            _child(World(writing, extensions), follow)
        finally:
            os._exit(0)
    os.close(writing)
    ended = os.pidfd_open(pid)
    try:
        result = _parsed(*_read(reading, ended, time.monotonic() + task.seconds))
    finally:
        os.close(reading)
        os.close(ended)
        for kill in (os.killpg, os.kill):  # Its compilers are in its process group.
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        _remove(path for path in _files(extensions.folder) if path not in there)
    if result.ended == DIED and os.WIFSIGNALED(status):
        result.reason = f"signal {os.WTERMSIG(status)} ended it; it may take {task.memory_bytes >> 20} MiB"
    return result


def _child(world: World, follow: Callable[[World], None]) -> None:
    os.setpgid(0, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    for expiry in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(expiry, _out_of_patience)
    _limit(PATIENCE_S, IDLE_S)
    try:
        follow(world)
        world.tell(ended=COMPLETED, reason=None)
    except KernelFault as fault:
        if fault.__cause__ is not None and registry.may_lack_the_gpu(fault.__cause__):
            world.note_uncertain("the compiler may have looked at the GPU, which a builder does not see")
        if may_pass_again(f"{fault.message}\n{fault.log}") or _nearly_full():
            world.note_uncertain("the compiler may have lacked memory, of which the run has more")
        if fault.status is Status.COMPILE_ERROR and world.uncertain is None:
            world.tell(fault=[fault.message, fault.log])
        doubt = f" (not certain: {world.uncertain})" if world.uncertain is not None else ""
        world.tell(ended=STOPPED, reason=f"{fault.message}{doubt}")
    except BaseException as error:
        ended = OUT_OF_TIME if isinstance(error, _OutOfPatience) else STOPPED
        expected = isinstance(error, Unfollowed | ExtensionCalled | _OutOfPatience)
        world.tell(ended=ended, reason=str(error) if expected else summary(error))


def _nearly_full() -> bool:
    """Whether this process is near its bound of memory. Python then raises errors of any kind, or hides why it does."""
    bound, _ = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        mmap.mmap(-1, bound // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return True
    return False


class _OutOfPatience(BaseException):
    """The source ran for too long without compiling anything."""


def _limit(processor_s: int, clock_s: int) -> None:
    """Sets both bounds anew; a busy host takes none of the processor time. 0: none."""
    signal.setitimer(signal.ITIMER_PROF, processor_s)
    signal.alarm(clock_s)


def _out_of_patience(*_: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # The next one ends the process.
    signal.alarm(1)
    raise _OutOfPatience(f"the source took {PATIENCE_S} s of a processor, or {IDLE_S} s, without compiling anything")


def _not_compiled(model: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Replaces `torch.compile`, which cannot trace fake tensors: what it would compile runs as it is."""
    return model if model is not None else lambda function: function


def _read(reports: int, ended: int, deadline: float) -> tuple[bytes, bool]:
    """All that the child wrote until it ended, and whether it ended in time. Processes that it left are not awaited."""
    text = b""
    while len(text) < MAX_REPORT_BYTES:
        ready, _, _ = select.select([reports, ended], [], [], max(deadline - time.monotonic(), 0.0))
        part = os.read(reports, 1 << 16) if reports in ready else b""
        if not part:
            return text, bool(ready)
        text += part
    return text, True


def _parsed(text: bytes, in_time: bool) -> DryRun:
    result = DryRun(ended=DIED if in_time else OUT_OF_TIME)
    for line in text.splitlines():
        match _report(line):
            case {"compiled": str(name)}:
                result.compiled.append(name)
            case {"fault": [str(message), str(log)]}:
                result.fault = KernelFault(Status.COMPILE_ERROR, message, log)
            case {"ended": str(code), "reason": None | str() as reason}:
                result.ended, result.reason = code, reason
            case {"entry": str(label)}:
                result.entry = label
            case {"example": example}:
                result.example = example
    return result


def _report(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # The source may write there, too, or may have died while it wrote.
        return None


def _files(folder: Path) -> Iterator[Path]:
    """All files in the job's folder, except where the run finds what was compiled."""
    for place, folders, names in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in CACHE_FOLDERS]
        yield from (Path(place, name) for name in (*folders, *names))


def _remove(paths: Iterator[Path]) -> None:
    """Removes the files that the child made, so that the source later finds its folder unchanged."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
