"""The work of a job on the device: its kernels are loaded, validated, timed, checked and diagnosed.

Each step hands its results on; what refers to device memory goes into the job's DeviceScope.
"""

from __future__ import annotations

import time
from contextlib import suppress

from domain.job import Stage
from tasks.correctness.determinism_check import DeterminismCheck
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.load_stage import Preparation
from tasks.correctness.trials import Trials
from tasks.correctness.weight_sync import OWN, Weights
from tasks.diagnostics.gpu_fault_attribution import raise_tested_card_fault
from tasks.diagnostics.post_timing_checks import SUSPICIOUS, measure_work, trace_launches
from tasks.evaluation.cases import JobCases, require_use
from tasks.evaluation.device_scope import DeviceScope
from tasks.evaluation.gradients import GradientPasses
from tasks.evaluation.robustness import check_robustness
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.memory_plan import MemoryPlan
from tasks.runtime.stream_isolation import Streams
from tasks.runtime.teardown import retire
from tasks.timing.timing_stage import Timekeeper


def judge(job: JobContext, kernel_runs: list[KernelRun], device: DeviceScope) -> None:
    """Judge the kernels under the device's lease and within the request's time, until one of them fails.

    Raises RestartJob, JobCancelled, InfrastructureFault.
    """
    device.memory_plan = MemoryPlan(job, kernel_runs)
    with suppress(Stopped), device.memory_plan.retried():
        streams = Streams(job.queues, kernel_runs, job.budget)
        preparation = Preparation(job, kernel_runs, device.memory_plan)
        trials, passes = _validate(job, preparation, device, streams)
        if device.cases is not None:
            device.cases.judge_others(preparation, trials, streams)
            device.timekeeper = timekeeper = device.cases.primary_timekeeper(trials, streams)
        else:
            device.timekeeper = timekeeper = Timekeeper(trials, streams)
        if trials.right and (device.cases is None or device.cases.right):
            _time(preparation, device, timekeeper)
        _diagnose(trials, timekeeper, device.cases, passes)
    device.stop_job_time()
    raise_tested_card_fault(kernel_runs, job)


def _validate(
    job: JobContext, preparation: Preparation, device: DeviceScope, streams: Streams
) -> tuple[Trials, GradientPasses | None]:
    kernel_runs, memory = preparation.kernel_runs, preparation.memory
    job.enter(Stage.LOAD)
    preparation.time_launches()  # Launch overhead must not count as a kernel's time.
    preparation.load()
    passes = GradientPasses(job, kernel_runs) if job.request.gradients else None
    device.cases = JobCases.of(job, kernel_runs, passes.choose if passes is not None else None)
    device.inputs = TrialInputs(kernel_runs[0], kernel_runs[-1], job.worker.device.name, job.secret)
    if len(kernel_runs) > 1:
        device.weights = Weights(*kernel_runs)
        preparation.share_weights(device.weights)
    job.enter(Stage.VALIDATE)
    if passes is not None and device.cases is not None:
        passes.choose(device.inputs)
    elif passes is not None and (wrong := passes.judge_forward(device, memory, preparation, streams)) is not None:
        return wrong, passes
    device.example = device.inputs.first()
    if device.cases is not None:
        require_use(device.inputs.summary, kernel_runs[0])
    began = time.monotonic()
    preparation.first_calls(device.example)
    streams.check_first_call()
    if passes is not None:
        passes.record()
    advice = device.weights.advice if device.weights is not None else None
    trials = Trials(job, kernel_runs, device.inputs, device.example, memory, advice)
    trials.validate()
    has_time = job.budget.fits(2 * (time.monotonic() - began))
    if passes is None and device.weights is not None and not trials.right and has_time:
        trials = _validate_with_own_weights(preparation, trials, device.weights)
    _report_interim_result(job, trials, right=trials.right)
    return trials, passes


def _validate_with_own_weights(preparation: Preparation, wrong: Trials, weights: Weights) -> Trials:
    """Trials of the candidate with the weights that its constructor makes; `wrong` unless it is right with those.

    Raises Stopped if a kernel fails in them; a candidate that fails stays wrong, as it was before.
    """
    if not preparation.construct_with_own_weights(weights):
        return wrong
    candidate, comparison = wrong.candidate, wrong.candidate.comparison
    try:
        preparation.first_calls(wrong.example)
        trials = wrong.for_other_inputs(wrong.inputs, wrong.example)
        trials.validate()
        if trials.right:
            weights.summary = OWN
            return trials
        weights.share()
    except Stopped:
        if candidate.fault is not None:
            candidate.fault, candidate.comparison = None, comparison
        raise
    candidate.comparison = comparison
    return wrong


def _time(preparation: Preparation, device: DeviceScope, timekeeper: Timekeeper) -> None:
    job, trials, cases = preparation.job, timekeeper.rounds, device.cases
    job.enter(Stage.TIME)
    timekeeper.time()
    if trials.right and cases is not None:
        cases.judge_hidden(preparation, trials, timekeeper.streams)
    if trials.right and device.weights is not None and (cases is None or cases.right):
        check_robustness(device, timekeeper, device.weights)
    trials.note_fixed_outputs()
    _report_interim_result(job, trials, right=trials.right and (cases is None or cases.right))


def _report_interim_result(job: JobContext, trials: Trials, *, right: bool) -> None:
    """Report the verdict so far, unless it comes from a used process and another one will be judged again."""
    if right or not trials.candidate.earlier_jobs:
        job.report_interim_result(right)


def _diagnose(trials: Trials, timekeeper: Timekeeper, cases: JobCases | None, passes: GradientPasses | None) -> None:
    """Questions to the runners beside verdict and times; the reference's come after the end of the candidate."""
    candidate, reference, profile = trials.candidate, trials.candidate.reference, trials.request.profile
    suspicious = timekeeper.speedup is not None and timekeeper.speedup.ratio > SUSPICIOUS
    measure_work(trials.kernel_runs, trials, checking=profile or suspicious)
    seed = trials.request.determinism_seed
    if seed is not None and trials.right and candidate.timing is not None:
        candidate.diagnosis.determinism = DeterminismCheck(trials, seed).run()
    if profile:  # The last request to a runner.
        trace_launches([candidate], trials)
    if reference is not None:  # From here on the reference runs without the candidate beside it.
        retire(candidate, trials.worker)
    if candidate.timing is not None and cases is not None:
        cases.recheck(timekeeper)
    elif candidate.timing is not None:
        timekeeper.recheck_without_candidate()
        if passes is not None:
            passes.recheck()
    trials.check_precision()
    if profile and reference is not None:
        trace_launches([reference], trials)
