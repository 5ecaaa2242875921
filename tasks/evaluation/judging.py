"""The work of a job on the device: its kernels are loaded, validated, timed, checked and diagnosed.

Each step hands its results on; what refers to device memory goes into the job's DeviceScope.
"""

from __future__ import annotations

from contextlib import suppress

from domain.job import Stage
from tasks.correctness.determinism_check import DeterminismCheck
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.load_stage import Preparation
from tasks.correctness.trials import Trials
from tasks.correctness.weight_sync import Weights
from tasks.diagnostics.gpu_fault_attribution import raise_tested_card_fault
from tasks.diagnostics.oom_attribution import attribute_memory_fault
from tasks.diagnostics.post_timing_checks import SUSPICIOUS, measure_work, trace_launches
from tasks.evaluation.device_scope import DeviceScope
from tasks.evaluation.gradients import GradientPasses
from tasks.evaluation.robustness import check_robustness
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.memory_plan import MemoryPlan
from tasks.runtime.stream_isolation import Streams
from tasks.timing.timing_stage import Timekeeper


def judge(job: JobContext, kernel_runs: list[KernelRun], device: DeviceScope) -> None:
    """Judge the kernels under the device's lease and within the request's time, until one of them fails.

    Raises RestartJob, JobCancelled, InfrastructureFault.
    """
    device.memory_plan = MemoryPlan(job, kernel_runs)
    with suppress(Stopped), device.memory_plan.retried():
        streams = Streams(job.queues, kernel_runs, job.budget)
        trials = _validate(job, kernel_runs, device, device.memory_plan, streams)
        device.timekeeper = timekeeper = Timekeeper(trials, streams)
        if trials.right:
            _time(job, device, timekeeper)
        _diagnose(trials, timekeeper)
    device.stop_job_time()
    attribute_memory_fault(kernel_runs, job.worker)
    raise_tested_card_fault(kernel_runs, job)


def _validate(
    job: JobContext, kernel_runs: list[KernelRun], device: DeviceScope, memory: MemoryPlan, streams: Streams
) -> Trials:
    job.enter(Stage.LOAD)
    preparation = Preparation(job, kernel_runs, memory)
    preparation.time_launches()  # Launch overhead must not count as a kernel's time.
    preparation.load()
    device.inputs = TrialInputs(kernel_runs[0], kernel_runs[-1], job.worker.device.name, job.secret)
    if len(kernel_runs) > 1:
        device.weights = Weights(*kernel_runs)
        preparation.share_weights(device.weights)
    job.enter(Stage.VALIDATE)
    passes = GradientPasses(job, kernel_runs) if job.request.gradients else None
    if passes is not None and (wrong := passes.judge_forward(device, memory, preparation, streams)) is not None:
        return wrong
    device.example = device.inputs.first()
    preparation.first_calls(device.example)
    streams.check_first_call()
    advice = device.weights.advice if device.weights is not None else None
    if passes is not None:
        advice = "; ".join(filter(None, [passes.record(), advice]))
    trials = Trials(job, kernel_runs, device.inputs, device.example, memory, advice)
    trials.validate()
    job.report_interim_result(trials.right)
    return trials


def _time(job: JobContext, device: DeviceScope, timekeeper: Timekeeper) -> None:
    job.enter(Stage.TIME)
    timekeeper.time()
    trials = timekeeper.rounds
    if trials.right and device.weights is not None:
        check_robustness(device, timekeeper, device.weights)
    trials.note_fixed_outputs()
    job.report_interim_result(trials.right)


def _diagnose(trials: Trials, timekeeper: Timekeeper) -> None:
    """Questions to the runners beside verdict and times; the reference's come after the end of the candidate."""
    candidate, reference, profile = trials.candidate, trials.candidate.reference, trials.request.profile
    suspicious = timekeeper.speedup is not None and timekeeper.speedup.ratio > SUSPICIOUS
    measure_work(trials.kernel_runs, trials, counting=profile or suspicious)
    if profile:
        trace_launches([candidate], trials)
    seed = trials.request.determinism_seed
    if seed is not None and trials.right and candidate.timing is not None:
        candidate.diagnosis.determinism = DeterminismCheck(trials, seed).run()
    if reference is not None:  # From here on the reference runs without the candidate beside it.
        candidate.close()
    if candidate.timing is not None:
        timekeeper.recheck_without_candidate()
    trials.check_precision()
    if profile and reference is not None:
        trace_launches([reference], trials)
