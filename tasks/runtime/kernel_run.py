"""One kernel of a job, the candidate or the reference, from its build to its outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from backends.base import Artifact
from domain.fault import InfrastructureFault, KernelFault, OutputFault, exception_chain
from domain.kernel import Kernel
from domain.listing import Listing, NoListing, ProfilerReport
from domain.result import Comparison, Outcome, Status, Timing
from profiling.roofline.intensity import Work
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import WindowSession
from sandbox.isolation.scratch_dir import remove
from sandbox.supervisor.messages import Loaded, Probe
from sandbox.supervisor.session import Session
from tasks.builds.folder_digest import digest
from tasks.builds.relocate import move
from tasks.node.path_redaction import without_machine_paths
from tasks.runtime.runner_pool import PooledRunner


class Stopped(Exception):
    """A kernel failed; its outcome says how, and the job goes on to its report."""


class KernelRun:
    """One kernel of a job with its runner and all results so far.

    The stages of a job use it inside `attribute_faults`, which records a KernelFault as this kernel's and stops the
    job."""

    def __init__(self, role: str, kernel: Kernel, folder: Path) -> None:
        self.role = role
        self.kernel = kernel
        self.folder = self._built_in = folder
        self.fault: KernelFault | None = None
        self.compiled = False
        self.artifact = Artifact()
        self.build_s = 0.0
        self.facts: dict[str, Any] = {}
        """Facts about the build by the word of its builder or runner; advisory."""
        self.origin: dict[str, str] = {}
        """Where its build came from, as the worker knows it."""
        self.compiled_at_run_time: str | None = None
        """Names the sources that were compiled while the job held the device, and how to avoid that; None if none
        were."""
        self.entry: str | None = None
        self.output = ""
        self.timing: Timing | None = None
        self.work: Work | None = None
        self.comparison: Comparison | None = None
        self.launches: dict[str, Any] | None = None
        self.listings: list[Listing | NoListing] | None = None
        self.profile: ProfilerReport | NoListing | None = None
        self.sanitizer: dict[str, Any] | None = None
        self.pooled_runner: PooledRunner | None = None
        self.session: Session | None = None
        self.loaded: Loaded | None = None
        self.probe: Probe | None = None
        self.window_session: WindowSession | None = None
        self.launch_shift_ms: float | None = None
        self.weight_bytes = 0
        """Size of a reference's weights in bytes, which are the task's."""
        self.upper_bound_ms = math.inf
        """Time of a call in the first windows by the referee's clock, window overhead included, in ms."""
        self.sealed = b""
        """Digest of the folder after the build."""
        self.spent_s = 0.0
        """Job time that the referee spent waiting for this kernel, in s."""
        self.reference: KernelRun | None = None
        """The reference of a candidate; None for a reference."""
        self.candidate: KernelRun | None = None
        """The candidate of a reference; None for a candidate. At a timeout the one that took more of the time is
        late."""

    @property
    def open_session(self) -> Session:
        """The session of its runner. Raises ValueError if it has none, which is a bug of this service."""
        if self.session is None:
            raise ValueError(f"the {self.role} has no runner")
        return self.session

    @property
    def open_window_session(self) -> WindowSession:
        """The window session of its runner. Raises ValueError if it has none, which is a bug of this service."""
        if self.window_session is None:
            raise ValueError(f"the {self.role} has no window session")
        return self.window_session

    def fail(self, fault: KernelFault) -> NoReturn:
        """Records a fault that the referee detected as this kernel's, and raises Stopped."""
        self.fault = fault
        raise Stopped from fault

    @contextmanager
    def attribute_faults(self) -> Iterator[None]:
        """A block in which a KernelFault, and the time spent, count as this kernel's.

        Raises Stopped for a KernelFault. A timeout is the candidate's fault if that took more of the job's time.
        """
        began = time.monotonic()
        try:
            yield
        except KernelFault as fault:
            own_s = self.spent_s + time.monotonic() - began
            if fault.status is Status.TIMEOUT and self.candidate is not None and self.candidate.spent_s > own_s:
                self.candidate.fail(_late(self.candidate.spent_s, own_s))
            if isinstance(fault, OutputFault) and self.reference is not None and self.reference.probe is not None:
                fault = fault.as_wrong_result()
            self.fault = fault
            raise Stopped from fault
        finally:
            self.spent_s += time.monotonic() - began

    @property
    def estimate_ms(self) -> float:
        """About how long a call takes, in ms: the runner's claim, capped by what the referee measured."""
        return min(self.probe.estimate_ms, self.upper_bound_ms) if self.probe is not None else 0.0

    @property
    def output_arguments(self) -> tuple[int, ...]:
        """Indexes of the arguments that the kernel writes its outputs to; empty if it returns them."""
        if self.probe is None or self.probe.returned or self.kernel.io is None:
            return ()
        return self.kernel.io.outputs

    @property
    def returned(self) -> list[torch.Tensor]:
        """Tensors shaped like the outputs that the kernel returns; empty if it writes them to arguments."""
        return self.probe.outputs if self.probe is not None and self.probe.returned else []

    def slots(self, calls: int, example: list[Any], device: str) -> Slots:
        """The memory layout of `calls` calls with arguments like `example`."""
        if self.probe is None:
            raise ValueError("not probed")
        io = self.kernel.io
        blank = tuple(index for index in self.output_arguments if io is not None and io.args[index].is_blank)
        return Slots(calls, example, self.output_arguments, self.returned, device, blank=blank)

    def move_into_runner_dir(self) -> None:
        """Moves the build's files into the folder that its runner is confined to, and gives them to the runner's user.

        Raises InfrastructureFault if the worker cannot do that.
        """
        if self.pooled_runner is None or self.pooled_runner.folder == self.folder:
            return
        unmodified = self.is_unmodified
        self.folder = self.pooled_runner.folder
        with self.attribute_faults():
            move(self._built_in, self.folder)
            if unmodified:
                self.seal()  # In its new place. A folder that was modified keeps its old seal, so that it still shows.

    def seal(self) -> None:
        """Records the digest of the folder after the build.

        Raises KernelFault if the folder is too large or closed to its owner, InfrastructureFault if the worker cannot
        read it.
        """
        try:
            self.sealed = digest(self.folder)
        except OSError as error:
            raise _unreadable(error) from error

    @property
    def is_unmodified(self) -> bool:
        """Whether the folder is as after the build. Raises InfrastructureFault if the worker cannot read it."""
        try:
            return digest(self.folder) == self.sealed
        except KernelFault:
            return False
        except OSError as error:
            raise _unreadable(error) from error

    @property
    def alive(self) -> bool:
        """Whether its runner is alive."""
        return self.session is not None and self.session.runner.alive

    def stop(self) -> None:
        """Signals its runner to end and does not wait for it, so that several can end at the same time."""
        if self.session is not None:
            self.session.stop()

    def collect_output(self) -> None:
        """Stores what its runner has printed so far; that is all of it once the runner was stopped."""
        if self.session is not None:
            self.output = self.session.runner.printed()

    def close(self) -> None:
        """Ends its runner and stores what it printed."""
        if self.session is not None:
            (self.window_session or self.session).close()
            self.output = self.session.runner.output.text()
            self.session = self.window_session = None  # The window session holds the image of its windows.

    def release_device_memory(self) -> None:
        """Drops every reference to device memory: layouts, outputs, and the frames that a fault passed through."""
        if self.window_session is not None:
            self.window_session.drop_layout()
        self.probe = None
        for error in exception_chain(self.fault):
            error.__traceback__ = None  # A frame also keeps its callers' frames alive.

    def remove_folder(self) -> None:
        """Removes the folder of its runner, which lies outside the job's folder."""
        if self.pooled_runner is not None:
            remove(self.pooled_runner.folder)

    @property
    def was_compiled(self) -> bool:
        """Whether the kernel was compiled; a fault may know that too."""
        if self.fault is None:
            return self.compiled
        return self.fault.compiled or (self.compiled and self.fault.status is not Status.COMPILE_ERROR)

    def outcome(self, inputs: dict[str, Any], failed_reference: Outcome | None = None) -> Outcome:
        """The verdict about this kernel, as far as the job came."""
        status, message, log = Status.PASSED, None, ""
        if self.fault is not None:
            status, message, log = self.fault.status, self.fault.message, self.fault.log
        elif self.comparison is not None and not self.comparison.passed:
            # Before a failed reference: a wrong output remains wrong, even if the reference fails after it.
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
            message=self.redact_paths(message) if message else None,
            log=self.redact_paths(log),
            output=self.redact_paths(self.output),
            entry=self.entry,
            inputs=inputs,
            build={
                **self.facts,
                "seconds": self.build_s,
                "deferred": self.artifact.deferred,
                "log": self.redact_paths(self.artifact.log),
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

    def redact_paths(self, text: str) -> str:
        """`text` without the paths of this machine."""
        return without_machine_paths(without_machine_paths(text, self.folder), self._built_in)


def _late(candidate_s: float, reference_s: float) -> KernelFault:
    spent = f"{candidate_s:.3g} s of the job's time went by for this kernel and {reference_s:.3g} s for the reference"
    return KernelFault(Status.TIMEOUT, f"timed out: {spent}, which has none left; raise `timeout` or do less")


def _unreadable(error: OSError) -> InfrastructureFault:
    return InfrastructureFault(f"what a build left cannot be read: {type(error).__name__}: {error.strerror}")
