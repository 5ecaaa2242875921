"""Gradients of a comparison: which of them both kernels compute, and the forward pass by itself before both passes."""

from __future__ import annotations

from dataclasses import replace

import torch

from domain import value as values
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.gradients import GradientPlan
from domain.result import Gradients
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.load_stage import Preparation
from tasks.correctness.trials import Trials
from tasks.evaluation.cases import SHARE_KEPT
from tasks.evaluation.device_scope import DeviceScope
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import CaseState, KernelRun
from tasks.runtime.memory_plan import MemoryPlan
from tasks.runtime.stream_isolation import Streams
from tasks.timing.timing_stage import Timekeeper
from validation.seeds import derive_seed

NO_INPUT_GRADIENT = "the reference has no gradient for it"
NOT_OF_BOTH = "the kernel has no parameter of this name and shape"


class GradientPasses:
    """The passes of one comparison. A call computes what the reference's `gradients` say (`domain/gradients.py`)."""

    def __init__(self, job: JobContext, kernel_runs: list[KernelRun]) -> None:
        self._job = job
        self._kernel_runs = kernel_runs
        self._reference, self._candidate = kernel_runs
        self._not_compared: dict[str, str] = {}
        self._forward: dict[str, CaseState] = {}  # Empty for a job with cases.
        self._timekeeper: Timekeeper | None = None

    def judge_forward(
        self, device: DeviceScope, memory: MemoryPlan, preparation: Preparation, streams: Streams
    ) -> Trials | None:
        """Chooses the gradients, then validates and times forward passes; returns their trials if an output is wrong.

        From then on calls compute both passes. Raises Stopped, RestartJob.
        """
        if device.inputs is None:
            raise ValueError("no inputs")
        plan = self.choose(device.inputs)
        self._reference.gradients = replace(plan, outputs=(), cotangents=())
        secret = derive_seed(self._job.secret, "forward")
        inputs = TrialInputs(self._reference, self._candidate, self._job.worker.device.name, secret)
        device.example = inputs.first()
        preparation.first_calls(device.example)
        streams.check_first_call()
        trials = Trials(self._job, self._kernel_runs, inputs, device.example, memory)
        trials.validate()
        timekeeper = Timekeeper(trials, streams)
        if trials.right:
            timekeeper.time()
        if not trials.right:
            return trials
        if not memory.one_call and timekeeper.layout_bytes <= SHARE_KEPT * self._job.worker.window_memory:
            self._timekeeper = timekeeper
        elif self._candidate.timing is not None:
            self._candidate.timing.flags.append(Flag.of(FlagCode.REFERENCE_NOT_RERUN))
        for kernel_run in self._kernel_runs:
            kernel_run.drop_probed_outputs()
            self._forward[kernel_run.role] = kernel_run.enter_case(CaseState(kernel_run.kernel))
        self._reference.gradients = plan
        return None

    def record(self) -> None:
        """Records the outputs' names and the forward passes' times, after the first call of both passes."""
        plan, probe = self._reference.gradients, self._reference.probe
        if plan is None or probe is None:
            raise ValueError("not probed")
        compared = plan.names(len(probe.outputs))
        for kernel_run in self._kernel_runs:
            state = self._forward.get(kernel_run.role)
            forward = state.timing if state is not None else None
            kernel_run.diagnosis.gradients = Gradients(compared, self._not_compared, plan.scale, forward)

    def recheck(self) -> None:
        """Leaves out or flags what the candidate slowed in the forward passes, which have a speed-up only now.

        Its process has ended. A candidate may slow its reference there alone.
        """
        timekeeper, self._timekeeper = self._timekeeper, None
        if timekeeper is None:
            return
        both = [kernel_run.enter_case(self._forward[kernel_run.role]) for kernel_run in self._kernel_runs]
        timekeeper.recheck_without_candidate()
        for kernel_run, state in zip(self._kernel_runs, both, strict=True):
            forward = kernel_run.enter_case(state).timing
            speedup = timekeeper.speedup if kernel_run is self._candidate else None
            if kernel_run.diagnosis.gradients is not None:
                found = replace(kernel_run.diagnosis.gradients, forward=forward, forward_speedup=speedup)
                kernel_run.diagnosis.gradients = found

    def choose(self, inputs: TrialInputs) -> GradientPlan:
        """Has calls on these inputs compute the reference's gradients, with the parameters that both modules have.

        Parameters belong together by name and shape. Raises Stopped.
        """
        with self._reference.attribute_faults():
            arguments = inputs.of_owner()
            plan = self._reference.open_session.differentiable(arguments)
            own = self._reference.open_session.state().weights
        with self._candidate.attribute_faults():
            other = self._candidate.open_session.state()
        shared = tuple(
            name
            for name in plan.parameters
            if name in other.parameters and name in own and own[name].shape == other.weights[name].shape
        )
        floating = [tensor.is_floating_point() for tensor in values.leaves(arguments, torch.Tensor)]
        without = [number for number, is_floating in enumerate(floating) if is_floating and number not in plan.inputs]
        self._not_compared = {f"input {number}": NO_INPUT_GRADIENT for number in without} | {
            f"parameter {name}": NOT_OF_BOTH for name in plan.parameters if name not in shared
        }
        self._reference.gradients = plan = replace(plan, parameters=shared)
        return plan
