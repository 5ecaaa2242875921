"""The checks after timing: what fresh inputs under the first weights cannot show."""

from __future__ import annotations

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from tasks.correctness.distribution_check import DistributionCheck, untried
from tasks.correctness.input_perturbation import InputPerturbation
from tasks.correctness.parameter_check import ParameterCheck
from tasks.correctness.trials import Trials
from tasks.correctness.weight_sync import Weights
from tasks.evaluation.device_scope import DeviceScope
from tasks.timing.timing_stage import Timekeeper


def check_robustness(device: DeviceScope, timekeeper: Timekeeper, weights: Weights) -> None:
    """Compare the kernels on other inputs and under other parameters. Raises Stopped.

    The distributions go to `device`, a wrong output to the trials; it takes the kernels' times back.
    """
    trials = timekeeper.rounds
    request, owner = trials.request, trials.kernel_runs[0]
    if not request.thorough:
        by_budget = f"the {request.budget} budget leaves them out"
        why = "left to other processes of the job" if request.tried else by_budget
        device.distributions = untried(Flag(FlagCode.DISTRIBUTION_SKIPPED, why))
        return
    if owner.session is not None:
        owner.session.set_deadline(trials.budget.deadline)  # Replaces the deadline of its last request.
    try:
        perturbation = InputPerturbation(trials.inputs, trials.job.secret)
    except KernelFault as fault:
        # A failure to make more inputs, perhaps because the process was stopped, leaves outputs and times valid.
        why = f"the {owner.role} made no more inputs: {fault.message}"
        device.distributions = untried(Flag(FlagCode.DISTRIBUTION_NO_INPUTS, why))
        return
    distributions = None if trials.memory_plan.is_large else DistributionCheck(trials, perturbation)
    parameters = ParameterCheck(weights, trials, perturbation)
    try:
        if distributions is not None:
            distributions.run(deciding=True)
        if trials.right:
            weights.check_buffers(trials.budget)
            parameters.run()
        if distributions is not None:
            # Last, since a kernel that fails there, and still passes, gets no further request.
            distributions.run(deciding=False, kernels_intact=parameters.kernels_intact)
    finally:
        too_large = untried(Flag.of(FlagCode.DISTRIBUTION_INPUTS_TOO_LARGE))
        device.distributions = too_large if distributions is None else distributions.summary
        _report_robustness(trials)
        if not trials.right or trials.candidate.fault is not None:
            timekeeper.discard_times()


def _report_robustness(trials: Trials) -> None:
    timing, comparison = trials.candidate.timing, trials.candidate.comparison
    failed = comparison.robustness.failed if comparison is not None else []
    if timing is None or not failed:
        return
    names = ", ".join(failure.distribution for failure in failed)
    message = (
        f"beyond the task's inputs the kernel fails where the reference is right ({names}); first: {failed[0].message}"
    )
    timing.flags.append(Flag(FlagCode.ROBUSTNESS_FAILED, message, {"distributions": len(failed)}))
