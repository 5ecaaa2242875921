"""The time for which a job has the device: its lease, its references to device memory, and their one end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from domain.result import Speedup
from profiling.gpu.monitor import CardUnavailable
from profiling.gpu.xid_errors import CardError
from tasks.correctness.distribution_check import DistributionSummary
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.weight_sync import Weights
from tasks.diagnostics.gpu_fault_attribution import new_card_errors, raise_reported_card_fault
from tasks.evaluation.cases import JobCases
from tasks.node.device_lease import device_lease
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.memory_plan import MemoryPlan
from tasks.runtime.stream_isolation import RestartJob
from tasks.runtime.teardown import end, stop
from tasks.timing.timing_stage import Timekeeper


@dataclass(frozen=True)
class DeviceUse:
    """The results of a job's time on the device, for its report; the defaults are those of a job that never had it.

    `spent_s` is the job's time, earlier processes included. `held_s` is the time of this lease, `windows_s` that of all
    windows in it.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    speedup: Speedup | None = None
    spent_s: float = 0.0
    held_s: float = 0.0
    windows_s: float = 0.0
    card_errors: list[CardError] | CardUnavailable | None = None
    memory_arrangement: str | None = None
    cases: JobCases | None = None


class DeviceScope:
    """The device of one job. The stages that need it put here what refers to its memory; `release` ends all of it.

    `example` has a call's arguments by role; it is empty until the inputs are drawn.
    """

    def __init__(self, job: JobContext, kernel_runs: list[KernelRun]) -> None:
        self._job = job
        self._kernel_runs = kernel_runs
        self._began = 0.0
        self.use = DeviceUse()
        self.inputs: TrialInputs | None = None
        self.weights: Weights | None = None
        self.example: dict[str, Arguments] = {}
        self.timekeeper: Timekeeper | None = None
        self.distributions: DistributionSummary | None = None
        self.memory_plan: MemoryPlan | None = None
        self.cases: JobCases | None = None

    @contextmanager
    def hold(self, deferred: ExitStack) -> Iterator[None]:
        """A block in which the job has the device. After it the runners have ended, or end when `deferred` is closed.

        Raises JobCancelled, and InfrastructureFault if the card failed meanwhile: no kernel is judged by that.
        """
        try:
            with device_lease(self._job.worker.device_id, self._job.cancelled):
                self._began = time.monotonic()
                try:
                    self._job.worker.card_errors.discard_pending()
                    yield
                    self._mark_runners()
                finally:
                    try:
                        self.release()  # Before any runner ends: driver calls would wait for its end.
                    finally:
                        stop(self._kernel_runs)
                        self.note_card_errors()
                        if isinstance(self.use.card_errors, list) and self.use.card_errors:
                            for kernel_run in self._kernel_runs:
                                kernel_run.stays = False
                        end(self._kernel_runs, self._job.worker, deferred)
                        self.use = replace(self.use, held_s=time.monotonic() - self._began)
        except RestartJob as restart:
            raise_reported_card_fault(self.use.card_errors)
            raise restart.after(self.use.held_s, self.left_bytes) from None
        raise_reported_card_fault(self.use.card_errors)

    def _mark_runners(self) -> None:
        """Marks the runners to be kept after a job without a fault, if memory is not short.

        A candidate's is kept only if its outputs were right.
        """
        device = self._job.worker.device
        usual = self.memory_plan is not None and not self.memory_plan.one_call
        no_fault = all(kernel_run.fault is None for kernel_run in self._kernel_runs)
        has_room = device.has_room or not device.is_cuda
        for kernel_run in self._kernel_runs if usual and no_fault and has_room else ():
            comparison = kernel_run.comparison
            kernel_run.stays = kernel_run.reuse_key is not None and (comparison is None or comparison.passed)

    @property
    def left_bytes(self) -> int:
        """The device's memory that other processes left as the job was planned, in bytes; 0 before that."""
        return self.memory_plan.left_bytes if self.memory_plan is not None else self._job.queues.left_bytes

    def stop_job_time(self) -> None:
        """Ends the time that counts as the job's: its kernels are judged, and only tools follow."""
        budget = self._job.budget
        self.use = replace(self.use, spent_s=budget.spent_s + time.monotonic() - self._began - budget.waited_s)

    def release(self) -> None:
        """Ends every reference to device memory, before other jobs get the device; first stores what the report needs.

        May be called again. Holders of device memory are layouts and outputs of the runners' windows, inputs and shared
        weights, and the null runner; also frames that an exception passed through.
        """
        if self.memory_plan is not None:
            self.use = replace(self.use, memory_arrangement=self.memory_plan.arrangement.value)
        if self.timekeeper is not None:
            windows_s = self.timekeeper.window_runner.windows_s
            self.use = replace(self.use, windows_s=windows_s, speedup=self.timekeeper.speedup)
        self.timekeeper = None
        if self.cases is not None:
            self.cases.release()
            self.use = replace(self.use, cases=self.cases)
        for kernel_run in self._kernel_runs:
            kernel_run.release_device_memory()
        try:
            if not self.use.inputs:
                self.use = replace(self.use, inputs=self._inputs_summary())
        finally:
            self.example, self.inputs, self.weights = {}, None, None
            self._job.worker.release_job_memory()

    def _inputs_summary(self) -> dict[str, Any]:
        """Source of the inputs, weights and distributions that were used, and the secret seed; JSON-ready.

        It is reported after all runners ended, because the seed reveals the inputs.
        """
        if self.inputs is None:
            return {}
        summary = self.inputs.summary
        if self.weights is not None and self.weights.summary is not None:
            summary["weights"] = self.weights.summary
            summary["weight_findings"] = [asdict(flag) for flag in self.weights.findings]
        if self.distributions is not None:
            summary["distributions"] = asdict(self.distributions)
        replayed = self._job.request.replay_seed is not None
        return summary | {"replay_seed": f"{self._job.secret:x}", "inputs_replayed": replayed}

    def note_card_errors(self) -> None:
        """Reads once which errors of the card the driver reported during this job."""
        if self.use.card_errors is None:
            self.use = replace(self.use, card_errors=new_card_errors(self._kernel_runs, self._job.worker))
