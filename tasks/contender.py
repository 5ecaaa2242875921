"""One of the one or two kernels of a job, from its build to its outcome."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.backend import Artifact
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Comparison, Outcome, Status, Timing
from profiling.slots import Slots
from profiling.window import Range
from sandbox.replies import Loaded, Probe
from sandbox.scratch import MOVED_IN, TooMuch, entries
from sandbox.session import Session
from tasks.privacy import without_machine_paths
from tasks.standbys import Standby


class Stopped(Exception):
    """A contender failed; its outcome says how, and the job goes on to its report."""


MAX_FOLDER_BYTES = 2 << 30
"""Of all files that a build leaves; a file may be long and hold nothing, and is read to its end all the same."""


def digest(folder: Path) -> bytes:
    """Of every file in a folder, by name and content. What is no plain file counts by its name alone.

    Raises KernelFault (UNSUPPORTED) for a folder that is too large to be read.
    """
    found = hashlib.blake2b(digest_size=32)
    size = 0
    try:
        left = sorted(entries(folder), key=lambda entry: entry.path)
    except TooMuch as error:
        raise KernelFault(Status.UNSUPPORTED, f"the build left {error}: write less while it is imported") from error
    for entry in left:
        found.update(os.fsencode(entry.path) + b"\0")
        if entry.is_file(follow_symlinks=False):
            size += entry.stat(follow_symlinks=False).st_size
            if size > MAX_FOLDER_BYTES:
                raise KernelFault(
                    Status.UNSUPPORTED,
                    f"the build left more than {MAX_FOLDER_BYTES >> 30} GiB in its folder: write less while the source "
                    "is imported",
                )
            found.update(_content(entry.path))
    return found.digest()


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).digest()
    except PermissionError as error:  # Of a worker that is not root.
        raise KernelFault(Status.UNSUPPORTED, "the build left a file that it does not let us read") from error


class Contender:
    """A kernel with what has been found out about it so far.

    Its faults are its own: whatever is done with it happens inside `answerable`, which notes the fault, stops the job.
    """

    def __init__(self, role: str, kernel: Kernel, folder: Path) -> None:
        self.role = role
        self.kernel = kernel
        self.folder = folder
        self.fault: KernelFault | None = None
        self.compiled = False
        self.artifact = Artifact()
        self.build_s = 0.0
        self.facts: dict[str, Any] = {}
        self.entry: str | None = None
        self.output = ""
        self.timing: Timing | None = None
        self.comparison: Comparison | None = None
        self.launches: dict[str, Any] | None = None
        self.standby: Standby | None = None
        self.session: Session | None = None
        self.loaded: Loaded | None = None
        self.probe: Probe | None = None
        self.range: Range | None = None
        self.launch_shift_ms: float | None = None
        self.at_most_ms = math.inf
        """What a call took in the first windows by the referee's clock, their overhead included."""
        self._sealed = b""
        self._also = folder

    def accuse(self, fault: KernelFault) -> None:
        """A fault found out from outside is this contender's; stops the job."""
        self.fault = fault
        raise Stopped from fault

    @contextmanager
    def answerable(self) -> Iterator[None]:
        """Inside, a KernelFault is this contender's."""
        try:
            yield
        except KernelFault as fault:
            self.fault = fault
            raise Stopped from fault

    @property
    def estimate_ms(self) -> float:
        """About how long a call takes: the runner's own word, which can make it no longer than the referee saw."""
        return min(self.probe.estimate_ms, self.at_most_ms) if self.probe is not None else 0.0

    @property
    def output_arguments(self) -> tuple[int, ...]:
        """Indexes of the arguments that carry the answer; empty when the kernel returns it."""
        if self.probe is None or self.probe.returned or self.kernel.io is None:
            return ()
        return self.kernel.io.outputs

    def slots(self, calls: int, example: list[Any], device: str) -> Slots:
        """The layout of that many calls with arguments like `example`."""
        if self.probe is None:
            raise ValueError("not probed")
        returned = self.probe.outputs if self.probe.returned else []
        return Slots(calls, example, self.output_arguments, returned, device)

    def seal(self) -> None:
        """Notes what the build left in its folder; raises KernelFault where that is too much."""
        self._sealed = digest(self.folder)

    @property
    def untouched(self) -> bool:
        """Whether the folder is as the build left it."""
        try:
            return digest(self.folder) == self._sealed
        except KernelFault:
            return False

    def stop(self) -> None:
        """Has its runner end, without waiting for it: what several of them need goes on at once."""
        if self.session is not None:
            self.session.stop()

    def close(self) -> None:
        """Ends its runner and keeps what it printed."""
        if self.session is not None:
            self.session.close()
            # What was built was moved, and is told of under the name that it has.
            self._also = self.session.runner.folder / MOVED_IN
            self.output = self.session.runner.output.text()
            self.session = None

    def outcome(self, inputs: dict[str, Any], failed_reference: Outcome | None = None) -> Outcome:
        """The verdict about this kernel as far as the job came."""
        status, message, log = Status.PASSED, None, ""
        compiled = self.compiled
        if self.fault is not None:
            status, message, log = self.fault.status, self.fault.message, self.fault.log
            compiled = self.fault.compiled or (compiled and status is not Status.COMPILE_ERROR)
        elif failed_reference is not None:
            status = Status.REFERENCE_FAILED
            message = (
                f"validation was skipped: the reference failed ({failed_reference.status}): {failed_reference.message}"
            )
            log = failed_reference.log
        elif self.comparison is not None and not self.comparison.passed:
            status, message = Status.WRONG_RESULT, self.comparison.message
        return Outcome(
            status=status,
            kernel_type=self.kernel.kernel_type.value,
            compiled=compiled,
            message=self._told(message) if message else None,
            log=self._told(log),
            output=self._told(self.output),
            entry=self.entry,
            inputs=inputs,
            build={
                "seconds": self.build_s,
                "deferred": self.artifact.deferred,
                "log": self._told(self.artifact.log),
                **self.facts,
            },
            timing=self.timing,
            comparison=self.comparison,
            launches=self.launches,
        )

    def _told(self, text: str) -> str:
        """Without the places of this machine."""
        return without_machine_paths(text.replace(str(self._also), str(self.folder)), self.folder)
