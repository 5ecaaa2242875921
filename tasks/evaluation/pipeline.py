"""The pipeline of a job, from its request to its report: build, wait for the device, load, validate, time.

This is the referee's side: it never runs a line of a submission. A kernel's fault becomes an outcome in the report.
Only a cancellation or a fault of the service raises out of `run`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from domain.fault import KernelFault
from domain.flags import Flag, FlagCode
from domain.job import Stage
from domain.request import Request
from domain.result import Report, Speedup
from profiling.gpu.monitor import CardUnavailable
from profiling.gpu.xid_errors import CardError, summary
from tasks.correctness.distribution_check import DistributionCheck, untried
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_perturbation import InputPerturbation
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.inputs_summary import inputs_summary
from tasks.correctness.load_stage import Preparation
from tasks.correctness.parameter_check import ParameterCheck
from tasks.correctness.trials import Trials
from tasks.correctness.weight_sync import Weights
from tasks.diagnostics.code_listings import extract_code, has_code
from tasks.diagnostics.gpu_fault_attribution import new_card_errors, raise_reported_card_fault, raise_tested_card_fault
from tasks.diagnostics.ncu_stage import read_counters
from tasks.diagnostics.oom_attribution import attribute_memory_fault
from tasks.diagnostics.post_timing_checks import NOT_REACHED, SUSPICIOUS, measure_work, trace_launches
from tasks.diagnostics.sanitizer_stage import run_sanitizer
from tasks.diagnostics.tool_run import Inspection
from tasks.evaluation.multi_process import evaluate_in_processes
from tasks.node.device_lease import device_lease
from tasks.runtime.build_stage import Building
from tasks.runtime.environment_report import environment
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.stream_isolation import Queues, RestartJob, Streams, roles_with_own_queues, until_stopped
from tasks.runtime.teardown import close, end, stop
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.timing_stage import Timekeeper
from validation.seeds import derive_seed


def run(
    request: Request,
    worker: WorkerContext,
    progress: Callable[[Stage], None],
    cancelled: Callable[[], bool],
    on_interim_result: Callable[[bool], None] = lambda right: None,
) -> Report:
    """Evaluate a kernel, or compare two. Raises JobCancelled, InfrastructureFault, or whatever `progress` raises.

    `on_interim_result` is called with the interim verdict of a comparison: before timing, and again after all calls.
    """
    return evaluate_in_processes(partial(_run, worker, progress, cancelled, on_interim_result), request)


def _run(
    worker: WorkerContext,
    progress: Callable[[Stage], None],
    cancelled: Callable[[], bool],
    on_interim_result: Callable[[bool], None],
    request: Request,
    queues: Queues,
) -> Report:
    with ExitStack() as stack:
        worker.start_zygote()
        home = stack.enter_context(worker.job_folder())
        kernel_runs = [
            KernelRun(role, one, worker.private_folder(home / role)) for role, one in request.kernels.items()
        ]
        job = _Job(request, worker, progress, cancelled, kernel_runs, on_interim_result, queues)
        for kernel_run in job.kernel_runs:
            stack.callback(kernel_run.remove_folder)
            kernel_run.launches = NOT_REACHED if request.profile else None
        stack.callback(close, job.kernel_runs)
        teardown_stack = stack.enter_context(ExitStack())
        try:
            job.build()
            progress(Stage.WAIT_FOR_DEVICE)
            job.acquire_runners()
            with device_lease(worker.device_id, cancelled):
                started = time.monotonic()
                try:
                    worker.card_errors.discard_pending()
                    with until_stopped(kernel_runs, queues, request.timeout):
                        job.evaluate()
                    job.spent_s = queues.spent_s + time.monotonic() - started - job.waited_s
                    attribute_memory_fault(job.kernel_runs, worker)
                    raise_tested_card_fault(job.kernel_runs, worker, cancelled)
                    job.inspect()
                finally:
                    try:
                        job.release_device()  # Before any runner ends: driver calls would wait for its end.
                    finally:
                        stop(job.kernel_runs)
                        job.note_card_errors()
                        end(job.kernel_runs, worker, teardown_stack)
                        job.device_s = time.monotonic() - started
        except RestartJob as restart:
            raise_reported_card_fault(job.card_errors)
            raise restart.after(job.device_s) from None
        except Stopped:
            job.inspect()  # Records that there is nothing to inspect.
            close(job.kernel_runs)
        raise_reported_card_fault(job.card_errors)
        if any(has_code(kernel_run, request.artifacts) for kernel_run in job.kernel_runs):
            teardown_stack.close()  # The runners must have ended before the referee reads the files that they leave.
        for kernel_run in job.kernel_runs:
            extract_code(kernel_run, request.artifacts, worker, cancelled)
        report = job.report()
        worker.teardown.submit(stack.pop_all())
        return report


class _Job:
    """One run of the pipeline: its kernels, and the state that the stages share."""

    def __init__(
        self,
        request: Request,
        worker: WorkerContext,
        progress: Callable[[Stage], None],
        cancelled: Callable[[], bool],
        kernel_runs: list[KernelRun],
        on_interim_result: Callable[[bool], None],
        queues: Queues,
    ) -> None:
        self.request = request
        self.worker = worker
        self.progress = progress
        self.cancelled = cancelled
        self.queues = queues
        self.kernel_runs = kernel_runs
        self.candidate = kernel_runs[-1]
        self.reference = kernel_runs[0] if len(kernel_runs) > 1 else None
        self.on_interim_result = on_interim_result if self.reference is not None else lambda right: None
        replay_seed = request.replay_seed
        self.secret = int(replay_seed, 16) if replay_seed is not None else secrets.randbits(256)
        # The submission learns this seed. It is a digest, so that the inputs cannot be derived from it.
        self.weights_seed = derive_seed(self.secret, "weights") % 2**31
        self.inputs: TrialInputs | None = None
        self.weights: Weights | None = None
        self.distributions: dict[str, Any] | None = None
        self.speedup: Speedup | None = None
        self.example: dict[str, Arguments] = {}
        self.metrics: dict[str, Any] | None = None
        self.input_summary: dict[str, Any] = {}
        self.device_s = self.spent_s = self.windows_s = self.deadline = 0.0
        self.timekeeper: Timekeeper | None = None
        self.trials: Trials | None = None
        self.card_errors: list[CardError] | CardUnavailable | None = None

    def build(self) -> None:
        """Compile every kernel with no GPU visible, before the job asks for the device; or take it from the cache."""
        self.progress(Stage.BUILD)
        self.worker.ready_compilers([kernel_run.kernel for kernel_run in self.kernel_runs])
        Building(self.worker, self.request, self.cancelled).build_all(self.kernel_runs)

    def acquire_runners(self) -> None:
        """Assign a runner to each kernel, with its CUDA context created before the job asks for the device."""
        folders = [kernel_run.folder for kernel_run in self.kernel_runs]
        multi_queue_roles, several = self.queues.of(self.kernel_runs), self.request.processes > 1
        runners = self.worker.acquire_runners(folders, self.cancelled, multi_queue_roles, more_follow=several)
        for kernel_run, runner in zip(self.kernel_runs, runners, strict=True):
            kernel_run.pooled_runner, kernel_run.session = runner, runner.session
        for kernel_run in self.kernel_runs:
            kernel_run.move_into_runner_dir()

    def evaluate(self) -> None:
        """Run everything that needs the device, under its lease and within the request's time."""
        self.progress(Stage.LOAD)
        preparation = Preparation(self.kernel_runs, self.worker, self.request.draw_on)
        preparation.time_launches(self.cancelled)  # Launch overhead must not count as a kernel's time.
        streams = Streams(self.queues, self.kernel_runs, self.request.timeout)
        preparation.load(streams.deadline, self.weights_seed)
        self.inputs = TrialInputs(self.kernel_runs[0], self.candidate, self.worker.device.name, self.secret)
        if self.reference is not None:
            self.weights = Weights(self.reference, self.candidate)
            preparation.share_weights(self.weights, self.weights_seed)
        self.progress(Stage.VALIDATE)
        self.example = self.inputs.first()
        preparation.first_calls(self.example)
        streams.check_first_call()
        advice = self.weights.advice if self.weights is not None else None
        self.deadline = streams.deadline
        trials = Trials(self.kernel_runs, self.inputs, self.example, self.worker, self.request, self.deadline, advice)
        self.trials = trials
        trials.validate()
        self.on_interim_result(trials.right)
        self.timekeeper = timekeeper = Timekeeper(trials, streams, self.cancelled)
        if trials.right:
            self.progress(Stage.TIME)
            self.speedup = timekeeper.time()
            if trials.right and self.weights is not None:
                self.run_robustness_checks(trials, self.weights)
            self.on_interim_result(trials.right)
        suspicious = self.speedup is not None and self.speedup.ratio > SUSPICIOUS
        measure_work(self.kernel_runs, trials, counting=self.request.profile or suspicious)
        if self.request.profile:
            trace_launches([self.candidate], self.example, trials.deadline)
        if self.reference is not None:  # From here on the reference runs without the candidate beside it.
            self.candidate.close()
        if self.candidate.timing is not None:
            self.speedup = timekeeper.recheck_without_candidate(self.speedup)
        trials.check_precision()
        if self.request.profile and self.reference is not None:
            trace_launches([self.reference], self.example, trials.deadline)

    @property
    def waited_s(self) -> float:
        """Seconds that the job waited for other jobs while it held the device; its deadline moved by as much."""
        return self.trials.deadline - self.deadline if self.trials is not None else 0.0

    def inspect(self) -> None:
        """Run profilers and sanitizers, which slow a kernel down, after the runners ended. Raises JobCancelled."""
        request = self.request
        if request.device_metrics is None and not request.sanitize:
            return
        self.progress(Stage.INSPECT)
        weights = self.weights.shared if self.weights is not None else {}
        inspection = Inspection(self.worker, self.kernel_runs, self.example, weights, self.weights_seed, self.cancelled)
        if self.example:  # Without example inputs no tool calls the kernel, and another job may hold the device.
            close(self.kernel_runs)
            self.note_card_errors()  # A sanitizer's finding may make the driver report the error once more.
            self.release_device()
        if request.device_metrics is not None:
            self.metrics = read_counters(inspection, request.device_metrics)
        if request.sanitize:
            self.candidate.sanitizer = run_sanitizer(inspection)

    def release_device(self) -> None:
        """Release all device memory before other jobs get the device; first store what the report needs."""
        self.windows_s = self.timekeeper.window_runner.windows_s if self.timekeeper is not None else self.windows_s
        self.trials = self.timekeeper = None
        for kernel_run in self.kernel_runs:
            kernel_run.release_device_memory()
        try:
            replayed = self.request.replay_seed is not None
            self.input_summary = self.input_summary or inputs_summary(
                self.inputs, self.weights, self.distributions, self.secret, replayed=replayed
            )
        finally:
            self.example, self.inputs, self.weights = {}, None, None
            self.worker.release_job_memory()

    def note_card_errors(self) -> None:
        """Read once which errors of the card the driver reported during this job."""
        if self.card_errors is None:
            self.card_errors = new_card_errors(self.kernel_runs, self.worker)

    def run_robustness_checks(self, trials: Trials, weights: Weights) -> None:
        """After timing, check what fresh inputs under the first weights cannot show: other inputs and parameters."""
        if not self.request.thorough:
            by_budget = f"the {self.request.budget} budget leaves them out"
            why = "left to other processes of the job" if self.request.tried else by_budget
            self.distributions = untried(Flag(FlagCode.DISTRIBUTION_SKIPPED, why))
            return
        if (owner := self.kernel_runs[0]).session is not None:
            owner.session.set_deadline(trials.deadline)  # Replaces the deadline of its last request.
        try:
            perturbation = InputPerturbation(trials.inputs, self.secret)
        except KernelFault as fault:
            # A failure to make more inputs, perhaps because the process was stopped, leaves outputs and times valid.
            why = f"the {owner.role} made no more inputs: {fault.message}"
            self.distributions = untried(Flag(FlagCode.DISTRIBUTION_NO_INPUTS, why))
            return
        distributions = DistributionCheck(trials, perturbation)
        try:
            distributions.run()
            if trials.right:
                weights.check_buffers(trials.deadline)
                ParameterCheck(weights, trials, perturbation, self.secret, self.weights_seed).run()
        finally:
            self.distributions = distributions.summary
            if not trials.right or self.candidate.fault is not None:
                self.speedup = None  # A wrong kernel has no time.
                for kernel_run in self.kernel_runs:
                    kernel_run.timing = None

    def report(self) -> Report:
        """The report, as complete as the stages that the job reached."""
        held = {"device_seconds": self.queues.held_s + self.device_s, "window_seconds": self.windows_s}
        environment_data = environment(self.worker.target) | held
        if self.card_errors is not None and self.worker.device.is_cuda:
            environment_data |= {
                "multi_queue_roles": roles_with_own_queues(self.kernel_runs),
                "gpu_errors": summary(self.card_errors),
            }
        reference = self.reference.outcome(self.input_summary) if self.reference is not None else None
        failed = reference if self.reference is not None and self.reference.fault is not None else None
        return Report(
            self.candidate.outcome(self.input_summary, failed),
            environment_data,
            reference,
            self.speedup,
            self.metrics,
            self.request.budget.to_dict(compares=reference is not None),
            self.spent_s,
            sum(kernel_run.build_s for kernel_run in self.kernel_runs),
        )
