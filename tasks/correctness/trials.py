"""Trials: K fresh input sets for every kernel, each in a window of its own, with every output compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypedDict, Unpack

import torch

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.gradients import GradientPlan, forward_output_count
from domain.kernel import KernelType
from domain.result import Robustness, RobustnessFailure
from domain.value import leaves
from profiling.roofline.written_bytes import in_place_bytes, returned_bytes
from profiling.window.call_buffers import Slots, bytes_per_call
from profiling.window.timed_window import DeferredReadback, Window
from sandbox.protocol.arena import comparable, without_contents
from tasks.correctness.boundary_check import BoundaryExcuses
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.precision_sample import PrecisionSample
from tasks.correctness.write_checks import (
    check_first_call,
    check_guards,
    check_inputs,
    check_written,
    input_mutation_differs,
    unwritten_hint,
)
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.memory_plan import COPIES_USUAL, MemoryPlan
from validation.compare.comparison import agree, compare_stacked
from validation.compare.input_strides import explain_strides
from validation.compare.mismatch_map import mismatch_map
from validation.compare.output_permutation import describe_permutation
from validation.compare.result import Aggregator, CallComparison
from validation.compare.ties import explain_ties
from validation.compare.tolerance import requested
from validation.evidence.precision_estimate import precision_finding
from validation.evidence.weak_reference import FixedOutputs, weak_reference

PRECISION_S = 5.0
REPEAT_S = 1.0
"""Minimum time, in s, that a job must have left, and a reference gets, for two more windows."""
RANDOM_REFERENCE = (
    "the reference itself answers the same inputs differently from call to call (dropout in training mode, other "
    "random numbers, or a state that it keeps): seed it in forward, or call eval() in its constructor"
)
INPUT_LAYOUT_MESSAGE = (
    "its contract asks for another memory layout of {names} than the reference gets: the referee copies before the "
    "clock runs, and no time includes that"
)
Outputs = list[torch.Tensor]


class WindowOptions(TypedDict, total=False):
    """Keyword arguments of `profiling.window.timed_window.WindowSession.window`."""

    gated: bool
    with_events: bool
    deferred_readback: DeferredReadback | None
    meanwhile: Callable[[], None] | None


class Trials:
    """The trials of one job. `kernel runs` are the reference (if there is one) and the candidate, in that order.

    `advice` gives what is added to a wrong result if no better hint exists. The reference has had its first call.
    """

    def __init__(
        self,
        job: JobContext,
        kernel_runs: list[KernelRun],
        inputs: TrialInputs,
        example: dict[str, Arguments],
        memory_plan: MemoryPlan,
        advice: Callable[[], str | None] | None = None,
    ) -> None:
        self.kernel_runs = kernel_runs
        self.candidate = kernel_runs[-1]
        self.inputs = inputs
        self.example = example
        self.job = job
        self.worker = job.worker
        self.request = job.request
        self.budget = job.budget
        self.memory_plan = memory_plan
        self.tolerance = requested(self.request.atol, self.request.rtol)
        self.weak_reference_findings: list[Flag] = []
        self.fixed_outputs = FixedOutputs([])
        self._advice = advice
        self._input_mutation_differs = False
        self._robustness_failures: list[RobustnessFailure] = []
        self._precision: dict[str, Any] | None = None
        self._hint: str | None = None
        self._mismatch_map: dict[str, Any] | None = None
        self._filled = 0
        plan, probe = kernel_runs[0].gradients, kernel_runs[0].probe
        outputs = probe.outputs if probe is not None else []
        self._compared = Aggregator(
            plan.names(len(outputs)) if plan is not None and outputs else (),
            [str(output.dtype).removeprefix("torch.") for output in outputs],
        )
        self._first_outputs: dict[str, list[Outputs]] = {}
        self._first_call: Arguments = []
        self._sample = PrecisionSample()
        self._boundary_excuses = BoundaryExcuses(kernel_runs[0], self.tolerance, self.request.matched_ratio)

    def for_other_inputs(self, inputs: TrialInputs, example: dict[str, Arguments]) -> Trials:
        """New trials of the same kernels, on inputs of another case."""
        return Trials(self.job, self.kernel_runs, inputs, example, self.memory_plan, self._advice)

    @property
    def warnings(self) -> list[Flag]:
        """Flags of the candidate's time: ways in which its work may differ from the reference's."""
        names = ", ".join(self.inputs.binder.converted_layouts)
        return [
            *self.weak_reference_findings,
            *filter(None, [self._boundary_excuses.warning, self._gradients_warning()]),
            *([Flag.of(FlagCode.INPUTS_CHANGED_DIFFERENTLY)] if self._input_mutation_differs else []),
            *(
                [Flag(FlagCode.INPUT_LAYOUT_COPIED, INPUT_LAYOUT_MESSAGE.format(names=names), {"inputs": names})]
                if names
                else []
            ),
        ]

    def _gradients_warning(self) -> Flag | None:
        gradients = self.candidate.diagnosis.gradients
        missing = [name for name in gradients.not_compared if name.startswith("parameter ")] if gradients else []
        if not missing:
            return None
        names = ", ".join(missing)
        flag = Flag.of(FlagCode.GRADIENTS_NOT_COMPARED, parameters=names)
        return dataclasses.replace(flag, message=f"{flag.message}: {names}")

    @property
    def reference_outputs(self) -> Outputs:
        """The reference's outputs of the first validated call."""
        return self._first_outputs[self.kernel_runs[0].role][0]

    @property
    def right(self) -> bool:
        """Whether no output of the candidate was wrong until now."""
        return self.candidate.comparison is None or self.candidate.comparison.passed

    def validate(self) -> None:
        """Run a few untimed calls on fresh inputs; the result is the candidate's first verdict."""
        sets = self.request.budget.effort.validation_sets
        slots = self.slots(max(min(sets, self.memory() // max(self.bytes_per_call(), 1)), 1))
        if self.memory_plan.is_large:
            self._keep_one_copy(slots)
        self.fill(slots)
        windows = {c.role: self.run_window(c, slots) for c in self.kernel_runs}
        for kernel_run in self.kernel_runs:
            kernel_run.cap_estimate(windows[kernel_run.role].elapsed_ms / slots[kernel_run.role].calls)
        # Two calls are enough to tell which outputs a call certainly writes.
        answers = {role: slots[role].read(window.snapshot) for role, window in windows.items()}
        self._first_outputs = {role: calls[:2] for role, calls in answers.items()}
        owner = self.kernel_runs[0]
        outputs, *others = answers[owner.role]
        with owner.attribute_faults():
            check_written(owner, outputs)
        if len(self.kernel_runs) > 1:
            inputs = list(map(comparable, leaves(slots[owner.role].arguments(0), torch.Tensor)))
            if owner.returned and not owner.returned[0].is_meta:
                others.append(list(map(comparable, owner.returned)))
            self.weak_reference_findings = weak_reference(outputs, inputs, self.tolerance, others)
            self.fixed_outputs = FixedOutputs(outputs)
            for answer in others:
                self.fixed_outputs.see(answer, [self.tolerance] * len(answer))
        self._first_call = slots[owner.role].arguments(0)
        if self.memory_plan.is_large:
            self._drop_first_outputs()
        self.judge(slots, windows)
        if self.right:
            with self.candidate.attribute_faults():
                check_first_call(self.kernel_runs, windows)
        if not (self.right or self._boundary_excuses.failed):
            self._check_reference_repeats(slots[owner.role], windows[owner.role])

    def explain_late_mistake(self, slots: dict[str, Slots], windows_s: float) -> None:
        """Tell, of a candidate that windows found wrong after it was valid, if its reference is to blame.

        `windows_s` is how long all windows took, in s. A reference that fails now changes neither verdict nor status.
        """
        reference, allowed_s = self.kernel_runs[0], REPEAT_S + 2 * windows_s
        if len(self.kernel_runs) == 1 or self._boundary_excuses.failed or not self.budget.fits(allowed_s):
            return
        reference.open_session.set_deadline(self.budget.within(allowed_s))
        try:
            self._check_reference_repeats(slots[reference.role], self.run_window(reference, slots))
        except Stopped:
            for kernel_run in self.kernel_runs:  # A timeout may have become the candidate's fault.
                kernel_run.fault = None

    def fill(self, slots: dict[str, Slots]) -> None:
        """Fill every call with fresh inputs; if drawing is too expensive, with mixed sets, or with repeated ones."""
        self.prepare_fill(slots)()

    def prepare_fill(self, slots: dict[str, Slots]) -> Callable[[], None]:
        """Change the seed of the windows now, and return the function that fills them."""
        self._filled += 1
        for layout in slots.values():
            layout.seed = self.inputs.window_seed(self._filled)
        self.memory_plan.make_room_to_draw()
        return lambda: self._fill(slots)

    def _fill(self, slots: dict[str, Slots]) -> None:
        calls = slots[self.candidate.role].calls
        reuses_sets = slots[self.candidate.role].filled and not self.inputs.affordable
        first, *others = slots.values()
        others = [layout for layout in others if layout is not first]
        # If all kernels get the same arguments, they are written once and copied in one go.
        twins = [layout for layout in others if self.inputs.binder.shared and layout.can_copy_from(first)]
        owners = {layout: role for role, layout in reversed(slots.items())}
        filled = {role: layout for layout, role in owners.items() if layout not in twins}
        filled_calls = 0
        # Each source only provides what the previous one left over.
        for source in [self.inputs.mixed] if reuses_sets else [self.inputs.draw, self.inputs.mixed]:
            for batch in source(calls - filled_calls):
                for role, layout in filled.items():
                    batch.fill(role, layout, filled_calls)
                filled_calls += len(batch)
        self.inputs.reused += calls - filled_calls
        if not reuses_sets:
            for layout in filled.values():
                layout.fill(
                    filled_calls, [layout.arguments(call % filled_calls) for call in range(filled_calls, calls)]
                )
        for twin in twins:
            twin.copy_from(first)

    def run_window(self, kernel_run: KernelRun, slots: dict[str, Slots], **options: Unpack[WindowOptions]) -> Window:
        with kernel_run.attribute_faults():
            return kernel_run.open_window_session.window(slots[kernel_run.role], **options)

    def judge(self, slots: dict[str, Slots], windows: dict[str, Window], advice: str | None = None) -> None:
        """Compare every call's outputs in full. Without a reference only the guards are checked."""
        with self.candidate.attribute_faults():
            check_guards(slots[self.candidate.role], windows[self.candidate.role])
        if len(self.kernel_runs) == 1:
            return
        reference, candidate = self.kernel_runs
        with candidate.attribute_faults():
            backward = GradientPlan.of(self.example[candidate.role]) is not None
            check_inputs(windows[reference.role], windows[candidate.role], backward=backward)
        is_reported = all(window.inputs_changed is not None for window in windows.values())
        if is_reported and windows[reference.role].inputs_changed and not self._input_mutation_differs:
            with candidate.attribute_faults():
                self._input_mutation_differs = self._inputs_end_otherwise(slots)
        expected, actual = (slots[c.role].read_stacked(windows[c.role].snapshot) for c in (reference, candidate))
        if self._checks_precision:
            self._sample.consider(slots[reference.role], expected, actual)
        comparisons = compare_stacked(expected, actual, self.tolerance)
        comparisons = self._boundary_excuses.excuse_boundary_elements(
            comparisons, slots[reference.role], expected, actual, self.budget
        )
        self._compared.add(comparisons)
        first = next((call for call, comparison in enumerate(comparisons) if not comparison.passed), None)
        if first is not None and self._mismatch_map is None:
            expected_outputs, actual_outputs = ([stack[first] for stack in outputs] for outputs in (expected, actual))
            self._mismatch_map = mismatch_map(expected_outputs, actual_outputs, self.tolerance)
            self._hint = (
                self._hint
                or unwritten_hint(candidate, actual_outputs)
                or describe_permutation(expected_outputs, actual_outputs, self.tolerance)
                or explain_ties(expected_outputs, actual_outputs)
                or advice
                or (self._advice() if self._advice is not None else None)
                or self._strides_hint(slots[candidate.role].arguments(first))
            )
        self._note_comparison()

    def note(self, comparison: CallComparison) -> None:
        """Add one more compared call from another check."""
        self._compared.add([comparison])
        self._note_comparison()

    def note_fixed_outputs(self) -> None:
        """Flags a passed comparison in which outputs fixed beforehand would pass all checks. The last check calls it.

        A process that leaves checks to another of the job calls it too, and says nothing.
        """
        flag = self.fixed_outputs.flag
        if flag is None or not self.right or self.request.tried:
            return
        self.weak_reference_findings.append(flag)
        self._note_comparison()
        if self.candidate.timing is not None:
            self.candidate.timing.flags.append(flag)

    def note_robustness_failure(self, failure: RobustnessFailure) -> None:
        """Add a failure on inputs beyond the task, which leaves the verdict as it is."""
        self._robustness_failures.append(failure)
        self._note_comparison()

    def check_precision(self) -> None:
        """Compare both outputs of one call with a float64 run of the reference, if that is written in torch.

        Reports nothing if the run fails or takes too long. Later requests set the runner's deadline themselves.
        """
        reference = self.kernel_runs[0]
        if reference.session is None or not self._checks_precision:
            return
        reference.session.set_deadline(self.budget.within(PRECISION_S))
        try:
            exact = reference.session.double(self._sample.arguments)
        except KernelFault:
            return
        actual, expected = self._sample.actual, self._sample.expected
        if exact is not None and len(exact) == len(actual) == len(expected):
            finding = precision_finding(exact, expected, actual)
            self._precision = dataclasses.asdict(finding) if finding is not None else None
            self._note_comparison()

    def output_bytes(self, kernel_run: KernelRun) -> int:
        """Bytes of a call's outputs: at least as many as `written_bytes`."""
        return sum(output.nbytes for calls in self._first_outputs.get(kernel_run.role, [])[:1] for output in calls)

    def written_bytes(self, kernel_run: KernelRun) -> int:
        """Bytes that a call of that kernel certainly writes; 0 if none is certain."""
        outputs = self._first_outputs.get(kernel_run.role, [])
        io = kernel_run.kernel.io
        if kernel_run.probe is None or len(outputs) < 2:
            return 0
        if not kernel_run.probe.returned and io is not None:
            pure = [
                t for i, t in zip(kernel_run.output_arguments, outputs[0], strict=True) if io.args[i].role == "output"
            ]
            return in_place_bytes(pure)
        inputs = leaves(self._first_call, torch.Tensor)  # The inputs of both sides, in any order.
        return returned_bytes(outputs[0], outputs[1], inputs) if kernel_run.session is not None else 0

    def tensor_bytes(self, kernel_run: KernelRun) -> int:
        """Bytes of the tensors that a call gets and returns, each counted once."""
        inputs = leaves(self.example[kernel_run.role], torch.Tensor)
        answers = self._first_outputs.get(kernel_run.role, [[]])[0] if kernel_run.returned else []
        return sum(tensor.numel() * tensor.element_size() for tensor in [*inputs, *answers])

    def slots(self, calls: int) -> dict[str, Slots]:
        """A layout of that many calls for each kernel; always the same one, of one call, if the runners take turns."""
        if self.memory_plan.one_call:
            return self._only_slots
        return {c.role: self._slots(c, calls) for c in self.kernel_runs}

    def filled_slots(self, kernel_run: KernelRun, calls: int) -> Slots:
        """A layout of that many calls for one kernel, all with the inputs of the first one."""
        slots = self.slots(calls)[kernel_run.role] if self.memory_plan.one_call else self._slots(kernel_run, calls)
        if not slots.filled:
            slots.broadcast(self.example[kernel_run.role])
        return slots

    def bytes_per_call(self) -> int:
        """Bytes per call of the kernel that needs the most."""
        return max(bytes_per_call(self.example[c.role], c.returned) for c in self.kernel_runs)

    def memory(self) -> int:
        """Maximum bytes of one kernel's window: its share of what others leave of the device; or one call's."""
        if self.memory_plan.one_call:
            return self.bytes_per_call()
        return self.memory_plan.left_of(self.worker.window_memory) // (COPIES_USUAL * len(self.kernel_runs))

    def _slots(self, kernel_run: KernelRun, calls: int) -> Slots:
        return kernel_run.slots(calls, self.example[kernel_run.role], self.worker.device.name)

    @cached_property
    def _only_slots(self) -> dict[str, Slots]:
        """A layout of one call for each kernel, or one for both if they have the same arguments and outputs."""
        first, *others = (self._slots(kernel_run, 1) for kernel_run in self.kernel_runs)
        shared = self.inputs.binder.shared and all(other.equals(first) for other in others)
        layouts = [first] * len(self.kernel_runs) if shared else [first, *others]
        return {c.role: layout for c, layout in zip(self.kernel_runs, layouts, strict=True)}

    @property
    def _checks_precision(self) -> bool:
        """Whether the reference runs in float64 too: it has to be written in torch, and to leave room for copies."""
        is_torch = self.kernel_runs[0].kernel.kernel_type == KernelType.TORCH
        possible = len(self.kernel_runs) > 1 and is_torch and not self.memory_plan.is_large
        return possible and self.request.thorough

    def _keep_one_copy(self, slots: dict[str, Slots]) -> None:
        """Keeps one copy of a call's inputs, that of the layout, and the first outputs that `weak_reference` needs."""
        self.memory_plan.make_room()
        self.inputs.drop_contents()
        for kernel_run in self.kernel_runs if self.memory_plan.is_tight else [self.candidate]:
            kernel_run.drop_probed_outputs()
        self.example.update({role: layout.arguments(0) for role, layout in slots.items()})

    def _drop_first_outputs(self) -> None:
        """Keeps of the first inputs and outputs only types, shapes and strides."""
        self.fixed_outputs.stop()
        self._first_outputs = {
            role: [[without_contents(tensor) for tensor in outputs] for outputs in calls]
            for role, calls in self._first_outputs.items()
        }
        for kernel_run in self.kernel_runs:
            kernel_run.drop_probed_outputs()

    def _inputs_end_otherwise(self, slots: dict[str, Slots]) -> bool:
        """`input_mutation_differs`, which accuses no kernel where the reference leaves its own inputs otherwise the
        next time."""
        session, layout = self.kernel_runs[0].session, slots[self.kernel_runs[0].role]
        try:
            return input_mutation_differs(self.kernel_runs, slots, self.tolerance, self.request.matched_ratio)
        except KernelFault:
            if session is None or session.arena is None or self.memory_plan.is_large:  # There is no room for a copy.
                raise
            first = [stack.clone() for stack in layout.stacked_inputs(session.arena.bytes)]
            layout.seed += 1
            self.run_window(self.kernel_runs[0], slots)
            if agree(first, layout.stacked_inputs(session.arena.bytes), self.tolerance):
                raise
            return True

    def _check_reference_repeats(self, slots: Slots, first: Window) -> None:
        """Check that the reference agrees with itself: no kernel can agree with one whose outputs are random."""
        slots.seed += 1
        again = self.run_window(self.kernel_runs[0], {self.kernel_runs[0].role: slots})
        one, other = (slots.read_stacked(window.snapshot) for window in (first, again))
        if not agree(one, other, self.tolerance):
            self._hint = RANDOM_REFERENCE
            self._note_comparison()

    def _strides_hint(self, arguments: Arguments) -> str | None:
        """`explain_strides` of a call's inputs. A kernel with a contract gets the layout that it asks for."""
        return explain_strides(leaves(arguments, torch.Tensor)) if self.candidate.kernel.io is None else None

    def _note_comparison(self) -> None:
        comparison = self._compared.comparison
        message = f"{comparison.message}; {self._hint}" if self._hint and comparison.message else comparison.message
        self.candidate.comparison = dataclasses.replace(
            comparison,
            message=message,
            weak_reference=self.weak_reference_findings,
            precision_check=self._precision,
            layout=self._layout(),
            mismatch_map=self._mismatch_map,
            robustness=Robustness(list(self._robustness_failures)),
            beyond_tolerance=self._boundary_excuses.beyond_tolerance,
        )

    def _layout(self) -> list[Flag]:
        """Outputs that the candidate returns in another memory layout: right, but the reader should know.

        Gradients are left out: theirs is by chance that of the operations that torch's autograd took.
        """
        expected, actual = (kernel_run.returned for kernel_run in self.kernel_runs)
        count = forward_output_count(self.kernel_runs[0].gradients, len(expected))
        return [
            Flag(
                FlagCode.OUTPUT_LAYOUT_DIFFERS,
                f"output {index} has strides {list(got.stride())}, the reference's {list(want.stride())}",
                {"output": index},
            )
            for index, (want, got) in enumerate(zip(expected[:count], actual, strict=False))
            if want.shape == got.shape and _steps(want) != _steps(got)
        ]


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides of the dimensions that have more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
