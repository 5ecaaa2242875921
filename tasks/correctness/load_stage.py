"""Loads the kernels into fresh runners and calls each once, before the referee validates anything."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from backends.dtypes import CODE_DTYPES
from domain.fault import KernelFault
from domain.inputs import DrawOn
from domain.result import Status
from profiling.window.call_buffers import bytes_per_call
from profiling.window.timed_window import WindowSession
from sandbox.supervisor.messages import Loaded
from tasks.correctness.input_batches import Arguments
from tasks.correctness.weight_sync import SAME_SEED, TRY_S, Weights
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.memory_plan import MemoryPlan
from validation.compare.output_matching import match_outputs
from validation.inputs.contract_inputs import ContractInputs

PROBE_CALLS = 4
CONSTRUCTED_AGAIN = (
    'constructed again on the host, where the candidate\'s constructor has to run; with `draw_on` "host" both are '
    "constructed there at first"
)


class Preparation:
    """Prepares the kernels of one job, each in a runner: the reference, if there is one, and the candidate."""

    def __init__(self, job: JobContext, kernel_runs: list[KernelRun], memory: MemoryPlan) -> None:
        self.job = job
        self.kernel_runs = kernel_runs
        self.worker = job.worker
        self.memory = memory

    def time_launches(self) -> None:
        """Measure launch overhead, before any submission is loaded. A device's first job also measures its peaks."""
        for kernel_run in self.kernel_runs:
            if (runner := kernel_run.pooled_runner) is None:
                continue
            # Without a launch time the runner has no context either, and writes caches as it opens one.
            writes = kernel_run.written_by_own_runner() if runner.launch_ms is None else nullcontext()
            with writes:
                kernel_run.launch_shift_ms = self.worker.launch_shift_ms(runner, self.job.cancelled)

    def load(self) -> None:
        """Load every kernel, one after the other; the job's time begins."""
        self.job.budget.start()
        for kernel_run in self.kernel_runs:
            kernel_run.start_time(self.job.budget.deadline)
        for kernel_run in self.kernel_runs:
            self._load(kernel_run)

    def first_calls(self, example: dict[str, Arguments]) -> None:
        """Call all kernels at once, so that loading libraries takes only the longer of both times.

        They run one after the other if memory is short. They also do on the CPU, because a kernel with many processes
        would slow the other down.
        """
        for kernel_run in self.kernel_runs:
            with kernel_run.attribute_faults():
                self.memory.admit(bytes_per_call(example[kernel_run.role], []))
        at_once = self.worker.device.is_cuda and not self.memory.one_call
        groups = [self.kernel_runs] if at_once else [[kernel_run] for kernel_run in self.kernel_runs]
        for group in groups:
            with self.memory.measured(group):
                self._first_calls(group, example)
            for kernel_run in group:
                self._admit(kernel_run, example[kernel_run.role])
        if len(self.kernel_runs) > 1:
            self._match_outputs()

    def _first_calls(self, kernel_runs: list[KernelRun], example: dict[str, Arguments]) -> None:
        for kernel_run in kernel_runs:
            with kernel_run.attribute_faults():
                kernel_run.open_session.start_probe(example[kernel_run.role], PROBE_CALLS)
        for kernel_run in kernel_runs:
            with kernel_run.attribute_faults():
                kernel_run.probe = kernel_run.open_session.finish_probe()
                if len(self.kernel_runs) > 1 and not kernel_run.probe.outputs:
                    raise KernelFault(
                        Status.WRONG_RESULT,
                        f"the {kernel_run.role} answered with no tensor and no number, so that there is nothing to "
                        "compare: return one, or give a contract (`io`) with an output argument",
                    )

    def _admit(self, kernel_run: KernelRun, arguments: Arguments) -> None:
        """Note the size of a call's outputs. Where memory is short, their contents are dropped before the next call."""
        with kernel_run.attribute_faults():
            self.memory.admit(bytes_per_call(arguments, []), bytes_per_call([], kernel_run.returned))
        is_candidate = kernel_run is self.kernel_runs[-1] and len(self.kernel_runs) > 1
        if self.memory.is_large and (is_candidate or self.memory.is_tight):
            kernel_run.drop_probed_outputs()

    def _match_outputs(self) -> None:
        """Put the candidate's outputs into the order of the reference's outputs."""
        expected, candidate = self.kernel_runs[0].probe, self.kernel_runs[-1]
        actual = candidate.probe
        if expected is None or actual is None:
            raise ValueError("not probed")
        with candidate.attribute_faults():
            order = match_outputs(expected.form, actual.form)
            if order != sorted(order):
                candidate.probe = actual = actual.ordered(order)
                candidate.open_session.order(order)
            _check_codes(expected.outputs, actual.outputs)

    def _load(self, kernel_run: KernelRun) -> None:
        if not kernel_run.is_unmodified:
            # Only a process that a builder left behind, or the other kernel, can have changed the files.
            message = f"files of the {kernel_run.role} were changed from outside after its build"
            candidate = self.kernel_runs[-1]
            candidate.fail(KernelFault(Status.CRASHED, message, compiled=candidate.compiled))
        session = kernel_run.open_session
        kernel_run.window_session = WindowSession(session, self.worker.device)
        with kernel_run.attribute_faults():
            # Check before drawing: the host overcommits memory, and the kernel would kill this process.
            if kernel_run.kernel.io is not None:
                self.memory.admit(ContractInputs(kernel_run.kernel.io, self.worker.device.name, None).nbytes)
            kernel_run.loaded = self._construct(kernel_run, self._place(kernel_run))

    def share_weights(self, weights: Weights) -> None:
        """Copy the reference's weights into the candidate. Where they do not fit, both have drawn theirs on one side.

        A candidate whose constructor needs the host where the reference's does not has other random numbers. The
        reference is then constructed again, on the host too.
        """
        weights.share()
        reference, candidate = self.kernel_runs
        sides = [kernel_run.loaded.constructed_on for kernel_run in (reference, candidate) if kernel_run.loaded]
        if weights.summary != SAME_SEED or sides != [DrawOn.DEVICE, DrawOn.HOST]:
            return
        with reference.attribute_faults():
            try:
                reference.loaded = self._construct(reference, DrawOn.HOST)
            except KernelFault as fault:
                raise KernelFault(fault.status, f"{fault.message} ({CONSTRUCTED_AGAIN})", fault.log) from fault
        weights.share()

    def construct_with_own_weights(self, weights: Weights) -> bool:
        """Construct a wrong candidate again, without the reference's weights. False if its constructor makes the same.

        A constructor may scale weights, or fold others into them, under the reference's names; copies replace those.
        """
        candidate, budget = self.kernel_runs[-1], self.job.budget
        if not weights.shared or self.memory.is_large or not budget.fits(TRY_S):
            return False
        candidate.open_session.set_deadline(budget.within(TRY_S))
        try:
            self._construct(candidate, self._place(candidate))
            return weights.has_own()
        except KernelFault:
            return False
        finally:
            candidate.open_session.set_deadline(budget.deadline)

    def _place(self, kernel_run: KernelRun) -> DrawOn:
        """Where a kernel's source makes its tensors: the candidate's where the reference's constructor did."""
        reference = self.kernel_runs[0]
        if kernel_run is reference or reference.loaded is None:
            return self.job.request.draw_on
        return reference.loaded.constructed_on or self.job.request.draw_on

    def _construct(self, kernel_run: KernelRun, draw_on: DrawOn) -> Loaded:
        """Load a kernel. All models start from one seed, so that equal layers have equal weights."""
        borrowed, seed = kernel_run.borrowed, self.job.weights_seed
        may_stay = kernel_run.reuse_key is not None
        return kernel_run.open_session.load(
            kernel_run.kernel, kernel_run.build.artifact, borrowed, seed, draw_on=draw_on, may_stay=may_stay
        )


def _check_codes(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> None:
    """Raises KernelFault (WRONG_RESULT) for another dtype where comparisons see bytes alone (`comparable`)."""
    for index, (want, got) in enumerate(zip(expected, actual, strict=False)):
        if want.dtype != got.dtype and CODE_DTYPES & {want.dtype, got.dtype}:
            message = f"Output {index} has the wrong dtype: expected dtype {want.dtype}, got {got.dtype}"
            raise KernelFault(Status.WRONG_RESULT, message)
