"""One of the one or two kernels of a job, from its build to its outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from backends.base import Artifact
from domain.fault import InfrastructureFault, KernelFault, OutputFault, behind
from domain.kernel import Kernel
from domain.listing import Listing, NoListing, ProfilerReport
from domain.result import Comparison, Outcome, Status, Timing
from profiling.roofline.intensity import Work
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Range
from sandbox.isolation.scratch_dir import remove
from sandbox.supervisor.messages import Loaded, Probe
from sandbox.supervisor.session import Session
from tasks.builds.folder_digest import digest
from tasks.builds.relocate import move
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.runner_pool import Standby


class Stopped(Exception):
    """A contender failed; its outcome says how, and the job goes on to its report."""


class Contender:
    """A kernel with what has been found out about it so far.

    Its faults are its own: whatever is done with it happens inside `answerable`, which notes the fault, stops the job.
    """

    def __init__(self, role: str, kernel: Kernel, folder: Path) -> None:
        self.role = role
        self.kernel = kernel
        self.folder = self._built_in = folder
        self.fault: KernelFault | None = None
        self.compiled = False
        self.artifact = Artifact()
        self.build_s = 0.0
        self.facts: dict[str, Any] = {}
        """By its runner's word."""
        self.origin: dict[str, str] = {}
        """Where its build came from, which is ours to say."""
        self.compiled_at_run_time: str | None = None
        """What was compiled with the device in hand, and how not to, where that was not known beforehand."""
        self.entry: str | None = None
        self.output = ""
        self.timing: Timing | None = None
        self.work: Work | None = None
        self.comparison: Comparison | None = None
        self.launches: dict[str, Any] | None = None
        self.listings: list[Listing | NoListing] | None = None
        self.profile: ProfilerReport | NoListing | None = None
        self.sanitizer: dict[str, Any] | None = None
        self.standby: Standby | None = None
        self.session: Session | None = None
        self.loaded: Loaded | None = None
        self.probe: Probe | None = None
        self.range: Range | None = None
        self.launch_shift_ms: float | None = None
        self.weight_bytes = 0
        """Of a reference, what its weights take: the task's."""
        self.at_most_ms = math.inf
        """What a call took in the first windows by the referee's clock, their overhead included."""
        self.sealed = b""
        """The digest of what the build left in the folder."""
        self.spent_s = 0.0
        """Of the job's time, what was waited for this contender."""
        self.reference: Contender | None = None
        """Of a candidate, the contender that its outputs are compared with."""
        self.beside: Contender | None = None
        """Of a reference, the candidate: who took more of the time is late, whoever is waited for when it ends."""

    @property
    def open_session(self) -> Session:
        """Its runner's; ValueError where it has none, which is a mistake of ours."""
        if self.session is None:
            raise ValueError(f"the {self.role} has no runner")
        return self.session

    def accuse(self, fault: KernelFault) -> NoReturn:
        """A fault found out from outside is this contender's; stops the job."""
        self.fault = fault
        raise Stopped from fault

    @contextmanager
    def answerable(self) -> Iterator[None]:
        """Inside, a KernelFault is this contender's, and so is the time."""
        began = time.monotonic()
        try:
            yield
        except KernelFault as fault:
            own_s = self.spent_s + time.monotonic() - began
            if fault.status is Status.TIMEOUT and self.beside is not None and self.beside.spent_s > own_s:
                self.beside.accuse(_late(self.beside.spent_s, own_s))
            if isinstance(fault, OutputFault) and self.reference is not None and self.reference.probe is not None:
                fault = fault.as_wrong_result()
            self.fault = fault
            raise Stopped from fault
        finally:
            self.spent_s += time.monotonic() - began

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

    @property
    def returned(self) -> list[torch.Tensor]:
        """Tensors like those of the answer that the kernel returns; none where arguments carry it."""
        return self.probe.outputs if self.probe is not None and self.probe.returned else []

    def slots(self, calls: int, example: list[Any], device: str) -> Slots:
        """The layout of that many calls with arguments like `example`."""
        if self.probe is None:
            raise ValueError("not probed")
        io = self.kernel.io
        blank = tuple(index for index in self.output_arguments if io is not None and io.args[index].is_blank)
        return Slots(calls, example, self.output_arguments, self.returned, device, blank=blank)

    def settle(self) -> None:
        """Moves what the build left into the folder that its runner is confined to, and gives it to that one's user.

        Raises InfrastructureFault where the worker cannot do that.
        """
        if self.standby is None or self.standby.folder == self.folder:
            return
        untouched = self.untouched
        self.folder = self.standby.folder
        with self.answerable():
            move(self._built_in, self.folder)
            if untouched:
                self.seal()  # As it lies there now. What was changed before that stays changed against its seal.

    def seal(self) -> None:
        """Notes what the build left in its folder.

        Raises KernelFault where that is too much or closed to its owner, InfrastructureFault where the worker cannot
        read it.
        """
        try:
            self.sealed = digest(self.folder)
        except OSError as error:
            raise _unreadable(error) from error

    @property
    def untouched(self) -> bool:
        """Whether the folder is as the build left it. Raises InfrastructureFault where the worker cannot read it."""
        try:
            return digest(self.folder) == self.sealed
        except KernelFault:
            return False
        except OSError as error:
            raise _unreadable(error) from error

    @property
    def alive(self) -> bool:
        """Whether its runner is."""
        return self.session is not None and self.session.runner.alive

    def stop(self) -> None:
        """Has its runner end, without waiting for it: what several of them need goes on at once."""
        if self.session is not None:
            self.session.stop()

    def listen(self) -> None:
        """Keeps what its runner has printed so far: all of it where that was stopped."""
        if self.session is not None:
            self.output = self.session.runner.printed()

    def close(self) -> None:
        """Ends its runner and keeps what it printed."""
        if self.session is not None:
            (self.range or self.session).close()
            self.output = self.session.runner.output.text()
            self.session = self.range = None  # And with the range the image of its windows.

    def forget(self) -> None:
        """Lets go of the device's memory: of layouts, answers, and whatever a fault came by on its way here."""
        if self.range is not None:
            self.range.forget()
        self.probe = None
        for error in behind(self.fault):
            error.__traceback__ = None  # With what called those frames, which lives as long as they do.

    def clear(self) -> None:
        """Removes the folder of its runner, which lies outside the job's."""
        if self.standby is not None:
            remove(self.standby.folder)

    @property
    def was_compiled(self) -> bool:
        """Whether it was, by what a fault says of it too."""
        if self.fault is None:
            return self.compiled
        return self.fault.compiled or (self.compiled and self.fault.status is not Status.COMPILE_ERROR)

    def outcome(self, inputs: dict[str, Any], failed_reference: Outcome | None = None) -> Outcome:
        """The verdict about this kernel as far as the job came."""
        status, message, log = Status.PASSED, None, ""
        if self.fault is not None:
            status, message, log = self.fault.status, self.fault.message, self.fault.log
        elif self.comparison is not None and not self.comparison.passed:
            # First: a wrong answer stands, whatever becomes of the reference after it.
            status, message = Status.WRONG_RESULT, self.comparison.message
        elif failed_reference is not None:
            status = Status.REFERENCE_FAILED
            message = (
                f"validation was skipped: the reference failed ({failed_reference.status}): {failed_reference.message}"
            )
            log = failed_reference.log
        return Outcome(
            status=status,
            kernel_type=self.kernel.kernel_type.value,
            compiled=self.was_compiled,
            message=self.told(message) if message else None,
            log=self.told(log),
            output=self.told(self.output),
            entry=self.entry,
            inputs=inputs,
            build={
                **self.facts,
                "seconds": self.build_s,
                "deferred": self.artifact.deferred,
                "log": self.told(self.artifact.log),
                **self.origin,
                **(
                    {"compiled_at_run_time": self.compiled_at_run_time} if self.compiled_at_run_time is not None else {}
                ),
            },
            timing=self.timing,
            roofline=self._roofline(),
            comparison=self.comparison,
            launches=self.launches,
            listings=self.listings,
            profile=self.profile,
            sanitizer=self.sanitizer,
            digest=self.kernel.digest,
        )

    def _roofline(self) -> dict[str, Any] | None:
        if self.work is None or self.timing is None:
            return None
        return self.work.position(self.timing.latency_ms, self.timing.calls_per_window)

    def told(self, text: str) -> str:
        """Without the paths of this machine."""
        return without_machine_paths(without_machine_paths(text, self.folder), self._built_in)


def _late(candidate_s: float, reference_s: float) -> KernelFault:
    told = f"{candidate_s:.3g} s of the job's time went by for this kernel and {reference_s:.3g} s for the reference"
    return KernelFault(Status.TIMEOUT, f"timed out: {told}, which has none left; raise `timeout` or do less")


def _unreadable(error: OSError) -> InfrastructureFault:
    return InfrastructureFault(f"what a build left cannot be read: {type(error).__name__}: {error.strerror}")
