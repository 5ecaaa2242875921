"""A job from its request to its report: build, wait for the device, load, validate, time.

The referee's side of everything: it never runs a line of a submission. What a kernel does wrong becomes an outcome in
the report; what raises out of `run` is a cancellation or the service's own fault.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from domain.fault import KernelFault
from domain.job import Stage
from domain.request import Request
from domain.result import Report, Speedup
from profiling.gpu.monitor import CardUnavailable
from profiling.gpu.xid_errors import CardError, summary
from tasks.correctness.distribution_check import OtherDistributions, untried
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_perturbation import VariedInputs
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.inputs_summary import inputs_summary
from tasks.correctness.load_stage import Preparation
from tasks.correctness.parameter_check import OtherWeights
from tasks.correctness.trials import Rounds
from tasks.correctness.weight_sync import Weights
from tasks.diagnostics.code_listings import has_code, look_at_code
from tasks.diagnostics.gpu_fault_attribution import blame_reported, blame_tested, reported
from tasks.diagnostics.ncu_stage import look_at_counters
from tasks.diagnostics.oom_attribution import blame_for_memory
from tasks.diagnostics.post_timing_checks import NOT_REACHED, SUSPICIOUS, look_at_launches, look_at_work
from tasks.diagnostics.sanitizer_stage import look_for_errors
from tasks.diagnostics.tool_run import Inspection
from tasks.evaluation.multi_process import judged_in_processes
from tasks.node.device_lease import device_lease
from tasks.runtime.build_stage import Building
from tasks.runtime.environment_report import environment
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.stream_isolation import Queues, RestartJob, Streams, roles_with_own_queues, until_stopped
from tasks.runtime.teardown import close, end, stop
from tasks.runtime.worker_context import WorkerContext
from tasks.timing.timing_stage import Timekeeper
from validation.seeds import derived


def run(
    request: Request,
    bench: WorkerContext,
    progress: Callable[[Stage], None],
    cancelled: Callable[[], bool],
    so_far: Callable[[bool], None] = lambda right: None,
) -> Report:
    """Evaluates or compares. Raises JobCancelled, InfrastructureFault, or whatever `progress` raises.

    `so_far` is told whether the candidate of a comparison is right, before any call is timed and again after all.
    """
    return judged_in_processes(partial(_run, bench, progress, cancelled, so_far), request)


def _run(
    bench: WorkerContext,
    progress: Callable[[Stage], None],
    cancelled: Callable[[], bool],
    so_far: Callable[[bool], None],
    request: Request,
    queues: Queues,
) -> Report:
    with ExitStack() as stack:
        bench.start_zygote()
        home = stack.enter_context(bench.job_folder())
        contenders = [KernelRun(role, one, bench.private_folder(home / role)) for role, one in request.kernels.items()]
        job = _Job(request, bench, progress, cancelled, contenders, so_far, queues)
        for contender in job.contenders:
            stack.callback(contender.remove_folder)
            contender.launches = NOT_REACHED if request.profile else None
        stack.callback(close, job.contenders)
        deferred = stack.enter_context(ExitStack())
        try:
            job.build()
            progress(Stage.WAIT_FOR_DEVICE)
            job.warm()
            with device_lease(bench.device_id, cancelled, request.yields_s):
                started = time.monotonic()
                try:
                    bench.card_errors.clear()
                    with until_stopped(contenders, queues, request.timeout):
                        job.judge()
                    job.spent_s = queues.spent_s + time.monotonic() - started - job.waited_s
                    blame_for_memory(job.contenders, bench)
                    blame_tested(job.contenders, bench, cancelled)
                    job.inspect()
                finally:
                    try:
                        job.let_go()  # Before any of them ends: what is asked of the driver meanwhile waits for that.
                    finally:
                        stop(job.contenders)
                        job.note_card_errors()
                        end(job.contenders, bench, deferred)
                        job.device_s = time.monotonic() - started
        except RestartJob as restart:
            blame_reported(job.card_errors)
            raise restart.after(job.device_s) from None
        except Stopped:
            job.inspect()  # Which says that there is nothing to look into.
            close(job.contenders)
        blame_reported(job.card_errors)
        if any(has_code(contender, request.artifacts) for contender in job.contenders):
            deferred.close()  # Before anybody reads what they leave.
        for contender in job.contenders:
            look_at_code(contender, request.artifacts, bench, cancelled)
        report = job.report()
        bench.teardown.submit(stack.pop_all())
        return report


class _Job:
    """One run of the pipeline: its contenders, and what the stages hand on."""

    def __init__(
        self,
        request: Request,
        bench: WorkerContext,
        progress: Callable[[Stage], None],
        cancelled: Callable[[], bool],
        contenders: list[KernelRun],
        so_far: Callable[[bool], None],
        queues: Queues,
    ) -> None:
        self.request = request
        self.bench = bench
        self.progress = progress
        self.cancelled = cancelled
        self.queues = queues
        self.contenders = contenders
        self.candidate = contenders[-1]
        self.reference = contenders[0] if len(contenders) > 1 else None
        self.so_far = so_far if self.reference is not None else lambda right: None
        given = request.replay_seed
        self.secret = int(given, 16) if given is not None else secrets.randbits(256)
        # A submission is told this one, and from what it is told its inputs cannot be worked out: a digest.
        self.weights_seed = derived(self.secret, "weights") % 2**31
        self.inputs: TrialInputs | None = None
        self.weights: Weights | None = None
        self.distributions: dict[str, Any] | None = None
        self.speedup: Speedup | None = None
        self.example: dict[str, Arguments] = {}
        self.metrics: dict[str, Any] | None = None
        self.told_of_inputs: dict[str, Any] = {}
        self.device_s = self.spent_s = self.windows_s = self.deadline = 0.0
        self.timekeeper: Timekeeper | None = None
        self.rounds: Rounds | None = None
        self.card_errors: list[CardError] | CardUnavailable | None = None

    def build(self) -> None:
        """Compiles every contender, with no GPU visible, before the device is asked for; or finds it built."""
        self.progress(Stage.BUILD)
        self.bench.ready_compilers([contender.kernel for contender in self.contenders])
        Building(self.bench, self.request, self.cancelled).build_all(self.contenders)

    def warm(self) -> None:
        """A runner for each contender, its context made before the device is asked for."""
        folders = [contender.folder for contender in self.contenders]
        multi_queue, several = self.queues.of(self.contenders), self.request.processes > 1
        runners = self.bench.acquire_runners(folders, self.cancelled, multi_queue, more_follow=several)
        for contender, runner in zip(self.contenders, runners, strict=True):
            contender.pooled_runner, contender.session = runner, runner.session
        for contender in self.contenders:
            contender.move_into_runner_dir()

    def judge(self) -> None:
        """Everything that needs the device, inside its lease and the request's time."""
        self.progress(Stage.LOAD)
        preparation = Preparation(self.contenders, self.bench)
        preparation.time_launches(self.cancelled)  # Which is no kernel's time.
        streams = Streams(self.queues, self.contenders, self.request.timeout)
        preparation.load(streams.deadline, self.weights_seed)
        self.inputs = TrialInputs(self.contenders[0], self.candidate, self.bench.device.name, self.secret)
        if self.reference is not None:
            self.weights = Weights(self.reference, self.candidate)
            self.weights.share()
        self.progress(Stage.VALIDATE)
        self.example = self.inputs.first()
        preparation.first_calls(self.example)
        streams.check_first_call()
        advice = self.weights.advice if self.weights is not None else None
        self.deadline = streams.deadline
        rounds = Rounds(self.contenders, self.inputs, self.example, self.bench, self.request, self.deadline, advice)
        self.rounds = rounds
        rounds.validate()
        self.so_far(rounds.right)
        self.timekeeper = timekeeper = Timekeeper(rounds, streams, self.cancelled)
        if rounds.right:
            self.progress(Stage.TIME)
            self.speedup = timekeeper.time()
            if rounds.right and self.weights is not None:
                self._try_otherwise(rounds, self.weights)
            self.so_far(rounds.right)
        suspicious = self.speedup is not None and self.speedup.ratio > SUSPICIOUS
        look_at_work(self.contenders, rounds, counting=self.request.profile or suspicious)
        if self.request.profile:
            look_at_launches([self.candidate], self.example, rounds.deadline)
        if self.reference is not None:  # Which is called without it beside it from now on.
            self.candidate.close()
        if self.candidate.timing is not None:
            self.speedup = timekeeper.recheck_without_candidate(self.speedup)
        rounds.look_at_precision()
        if self.request.profile and self.reference is not None:
            look_at_launches([self.reference], self.example, rounds.deadline)

    @property
    def waited_s(self) -> float:
        """For others, of the time that the device was held: by so much the job's deadline was put off."""
        return self.rounds.deadline - self.deadline if self.rounds is not None else 0.0

    def inspect(self) -> None:
        """What tools find that make a kernel slow, once its runners are gone. Raises JobCancelled."""
        asked = self.request
        if asked.device_metrics is None and not asked.sanitize:
            return
        self.progress(Stage.INSPECT)
        weights = self.weights.shared if self.weights is not None else {}
        inspection = Inspection(self.bench, self.contenders, self.example, weights, self.weights_seed, self.cancelled)
        if self.example:  # Else nothing is called, and the device may be another job's by now.
            close(self.contenders)
            self.note_card_errors()  # What a sanitizer finds may make the driver report it once more.
            self.let_go()
        if asked.device_metrics is not None:
            self.metrics = look_at_counters(inspection, asked.device_metrics)
        if asked.sanitize:
            self.candidate.sanitizer = look_for_errors(inspection)

    def let_go(self) -> None:
        """Of all that has the device's memory, before others have the device; what is to be told of it is kept."""
        self.windows_s = self.timekeeper.window_runner.windows_s if self.timekeeper is not None else self.windows_s
        self.rounds = self.timekeeper = None
        for contender in self.contenders:
            contender.release_device_memory()
        try:
            replayed = self.request.replay_seed is not None
            self.told_of_inputs = self.told_of_inputs or inputs_summary(
                self.inputs, self.weights, self.distributions, self.secret, replayed=replayed
            )
        finally:
            self.example, self.inputs, self.weights = {}, None, None
            self.bench.release_job_memory()

    def note_card_errors(self) -> None:
        """What the driver has reported of the card during this job."""
        if self.card_errors is None:
            self.card_errors = reported(self.contenders, self.bench)

    def _try_otherwise(self, rounds: Rounds, weights: Weights) -> None:
        """What fresh sets of the drawn distribution under the first weights cannot show, once the times are known."""
        if not self.request.thorough:
            by_budget = f"the {self.request.budget} budget leaves them out"
            self.distributions = untried("left to other processes of the job" if self.request.tried else by_budget)
            return
        if (owner := self.contenders[0]).session is not None:
            owner.session.until(rounds.deadline)  # Not the one that it was last asked under.
        try:
            varied = VariedInputs(rounds.inputs, self.secret)
        except KernelFault as fault:
            # Its answers and times stand: that it can make no more inputs now, maybe as it was stopped, changes none.
            self.distributions = untried(f"the {owner.role} made no more inputs: {fault.message}")
            return
        distributions = OtherDistributions(rounds, varied)
        try:
            distributions.judge()
            if rounds.right:
                weights.look_at_buffers(rounds.deadline)
                OtherWeights(weights, rounds, varied, self.secret, self.weights_seed).judge()
        finally:
            self.distributions = distributions.summary
            if not rounds.right or self.candidate.fault is not None:
                self.speedup = None  # The time of a wrong kernel is none.
                for contender in self.contenders:
                    contender.timing = None

    def report(self) -> Report:
        """What was found out, as far as the job came."""
        held = {"device_seconds": self.queues.held_s + self.device_s, "window_seconds": self.windows_s}
        where = environment(self.bench.target) | held
        if self.card_errors is not None and self.bench.device.is_cuda:
            where |= {"streams_apart": roles_with_own_queues(self.contenders), "card_errors": summary(self.card_errors)}
        reference = self.reference.outcome(self.told_of_inputs) if self.reference is not None else None
        failed = reference if self.reference is not None and self.reference.fault is not None else None
        return Report(
            self.candidate.outcome(self.told_of_inputs, failed),
            where,
            reference,
            self.speedup,
            self.metrics,
            self.request.budget.told(compares=reference is not None),
            self.spent_s,
            sum(contender.build_s for contender in self.contenders),
        )
