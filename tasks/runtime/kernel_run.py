"""One kernel of a job, the candidate or the reference: its folder, its runner, its faults and what stages recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from backends.base import Artifact, ReferenceArguments
from domain.determinism import Determinism
from domain.fault import InfrastructureFault, KernelFault, OutputFault, exception_chain
from domain.gradients import GradientPlan
from domain.kernel import Kernel
from domain.listing import Listing, NoListing, ProfilerReport
from domain.result import Comparison, Gradients, Status, Timing
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


@dataclass(frozen=True)
class Build:
    """The build of one kernel, also of one that failed; `seconds` excludes waiting for another job's build.

    `compiled`: whether it left nothing to compile. `origin`: where it came from and what BUILD_FOR had compiled, as the
    worker knows it: a source can write the artifact's facts.
    """

    artifact: Artifact = field(default_factory=Artifact)
    compiled: bool = False
    seconds: float = 0.0
    origin: dict[str, Any] = field(default_factory=dict)


@dataclass
class Diagnosis:
    """Results of the diagnostics of one kernel; each field is written by one of them, and None until then.

    `code_needs` is the data that Triton's kernels need to run, as the listing of their code found it.
    """

    work: Work | None = None
    launches: dict[str, Any] | None = None
    listings: list[Listing | NoListing] | None = None
    code_needs: list[dict[str, Any]] | None = None
    profile: ProfilerReport | NoListing | None = None
    sanitizer: dict[str, Any] | None = None
    determinism: Determinism | None = None
    gradients: Gradients | None = None


@dataclass
class CaseState:
    """A kernel run's part in one case of its job, or in its forward passes by themselves: contract, inputs, gradients,
    first calls, comparison and time.

    `upper_bound_ms` is the time of a call by the referee's clock, window overhead included.
    """

    kernel: Kernel
    probe: Probe | None = None
    comparison: Comparison | None = None
    timing: Timing | None = None
    upper_bound_ms: float = math.inf
    gradients: GradientPlan | None = None


class KernelRun:
    """One kernel of a job with its runner, and what each stage recorded about it.

    The stages of a job use it inside `attribute_faults`, which records a KernelFault as this kernel's and stops the
    job. Each result is written by one stage: `build` by the build stage; `launch_shift_ms`, `loaded` and `probe` by the
    load stage; `weight_bytes` by the weight sync; `comparison` by the trials; `timing` by the timing stage.
    """

    def __init__(self, role: str, kernel: Kernel, folder: Path, reference: KernelRun | None = None) -> None:
        self.role = role
        self.kernel = kernel
        self.folder = self._built_in = folder
        self.reference = reference
        """The reference of a candidate; None for a reference."""
        self.candidate: KernelRun | None = None
        """The candidate of a reference; None for a candidate. At a timeout the one that took more of the time is
        late."""
        if reference is not None:
            reference.candidate = self
        self.fault: KernelFault | None = None
        self.output = ""
        self.pooled_runner: PooledRunner | None = None
        self.session: Session | None = None
        self.window_session: WindowSession | None = None
        self.build = Build()
        self.launch_shift_ms: float | None = None
        self.loaded: Loaded | None = None
        self.probe: Probe | None = None
        self.gradients: GradientPlan | None = None
        """The gradients that calls compute, of a reference whose inputs both get; None without."""
        self.weight_bytes = 0
        """Size of a reference's weights in bytes, which are the task's."""
        self.comparison: Comparison | None = None
        self.timing: Timing | None = None
        self.diagnosis = Diagnosis()
        self.sealed = b""
        """Digest of the folder after the build."""
        self.earlier_jobs = 0
        """Number of jobs that its runner has served before this one."""
        self.reuse_key: str | None = None
        """The key under which later jobs may have its runner; None if it serves this job alone."""
        self.stays = False
        """Whether its runner is kept after this job."""
        self.emptied = False
        """Whether its runner has dropped the kernel, and nothing of it is left there."""
        self.device_bytes: int | None = None
        """Device memory of its runner before the runner's first job, in bytes; None if unknown."""
        self._upper_bound_ms = math.inf
        self._spent_s = 0.0

    @property
    def borrowed(self) -> ReferenceArguments | None:
        """The reference's arguments, which a candidate gets; None for a reference, and for a kernel alone."""
        reference = self.reference.loaded if self.reference is not None else None
        return reference.arguments if reference is not None else None

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
            own_s = self._spent_s + time.monotonic() - began
            if fault.status is Status.TIMEOUT and self.candidate is not None and self.candidate._spent_s > own_s:
                self.candidate.fail(_late(self.candidate._spent_s, own_s))
            if isinstance(fault, OutputFault) and self.reference is not None and self.reference.probe is not None:
                fault = fault.as_wrong_result()
            self.fault = fault
            raise Stopped from fault
        finally:
            self._spent_s += time.monotonic() - began

    def enter_case(self, state: CaseState) -> CaseState:
        """Takes the state of a case; returns the one that it replaces. The runner is not told."""
        before = CaseState(self.kernel, self.probe, self.comparison, self.timing, self._upper_bound_ms, self.gradients)
        self.kernel, self.probe, self.gradients = state.kernel, state.probe, state.gradients
        self.comparison, self.timing = state.comparison, state.timing
        self._upper_bound_ms = state.upper_bound_ms
        return before

    @property
    def estimate_ms(self) -> float:
        """About how long a call takes, in ms: the runner's claim, capped by what the referee measured."""
        return min(self.probe.estimate_ms, self._upper_bound_ms) if self.probe is not None else 0.0

    def cap_estimate(self, call_ms: float) -> None:
        """Lowers the estimate to the time of a call by the referee's clock, window overhead included, in ms."""
        self._upper_bound_ms = min(self._upper_bound_ms, call_ms)

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

    def start_time(self, deadline: float) -> None:
        """Begins this kernel's share of the job's time: what the referee waits for it from now on counts."""
        self.open_session.set_deadline(deadline)
        self._spent_s = 0.0

    def take_runner(self, runner: PooledRunner) -> None:
        """Takes the runner that will call the kernel; `remove_folder` removes its folder."""
        self.pooled_runner, self.session = runner, runner.session

    def take_warm_runner(self, runner: PooledRunner, seal: bytes) -> None:
        """Takes a runner that was kept from an earlier job; its folder holds the same build, with that seal."""
        self.take_runner(runner)
        self.folder, self.sealed = runner.folder, seal

    def leave_windows(self) -> Session:
        """Ends the window session; its runner lives on in the session that this returns."""
        session = self.open_window_session.leave()
        self.window_session = None
        return session

    def give_up_runner(self) -> None:
        self.pooled_runner = self.session = self.window_session = None

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

    @contextmanager
    def written_by_own_runner(self) -> Iterator[None]:
        """A block in which its runner, still without a submission, writes caches into the folder; seals them."""
        unmodified = self.is_unmodified
        yield
        if unmodified:
            self.seal()

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

    def drop_probed_outputs(self) -> None:
        """Drops the contents of the first calls' outputs; their types, shapes and strides stay."""
        if self.probe is not None:
            self.probe = self.probe.without_contents()

    def release_device_memory(self) -> None:
        """Drops every reference to device memory: layouts, outputs, and the frames that a fault passed through."""
        if self.window_session is not None:
            self.window_session.drop_layout()
        if self.probe is not None:
            self.probe = replace(self.probe, outputs=[])
        for error in exception_chain(self.fault):
            error.__traceback__ = None  # A frame also keeps its callers' frames alive.

    def remove_folder(self) -> None:
        """Removes the folder of its runner, which lies outside the job's folder."""
        if self.pooled_runner is not None:
            remove(self.pooled_runner.folder)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the build by the word of its builder or runner; advisory."""
        facts = self.build.artifact.facts | (self.loaded.facts if self.loaded is not None else {})
        if self.diagnosis.code_needs is not None:
            named = facts.get("kernels")
            facts["kernels"] = [*(named if isinstance(named, list) else []), *self.diagnosis.code_needs]
        return facts

    @property
    def compiled(self) -> bool:
        """Whether nothing is left to compile: since the build, or since its runner loaded it."""
        return self.build.compiled or self.loaded is not None

    @property
    def was_compiled(self) -> bool:
        """Whether the kernel was compiled; a fault may know that too."""
        if self.fault is None:
            return self.compiled
        return self.fault.compiled or (self.compiled and self.fault.status is not Status.COMPILE_ERROR)

    def redact_paths(self, text: str) -> str:
        return without_machine_paths(without_machine_paths(text, self.folder), self._built_in)


def _late(candidate_s: float, reference_s: float) -> KernelFault:
    spent = f"{candidate_s:.3g} s of the job's time went by for this kernel and {reference_s:.3g} s for the reference"
    return KernelFault(Status.TIMEOUT, f"timed out: {spent}, which has none left; raise `timeout` or do less")


def _unreadable(error: OSError) -> InfrastructureFault:
    return InfrastructureFault(f"what a build left cannot be read: {type(error).__name__}: {error.strerror}")
