"""Rounds: K fresh input sets, given to every contender in a window of its own, every output compared."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Unpack

import torch

from domain.fault import KernelFault
from domain.kernel import KernelType
from domain.request import Request
from domain.value import leaves
from profiling.roofline.written_bytes import in_place_bytes, returned_bytes
from profiling.window.call_buffers import Slots, bytes_per_call
from profiling.window.timed_window import Window
from tasks.correctness.boundary_check import Edges
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.precision_sample import SampledCall
from tasks.correctness.write_checks import (
    check_first_call,
    check_guards,
    check_inputs,
    check_written,
    left_otherwise,
    never_written,
)
from tasks.runtime.freeze import WindowOptions, undisturbed_window
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from validation.compare.comparison import agree, compare_stacked
from validation.compare.mismatch_map import mismatch_map
from validation.compare.output_permutation import other_order
from validation.compare.result import CallComparison, Tally
from validation.compare.ties import tied
from validation.compare.tolerance import requested
from validation.evidence.precision_estimate import precision_finding
from validation.evidence.weak_reference import weak_reference

PRECISION_S = 5.0
RANDOM_REFERENCE = (
    "the reference itself answers the same inputs differently from call to call (dropout in training mode, other "
    "random numbers, or a state that it keeps): seed it in forward, or call eval() in its constructor"
)
CHANGES_OTHERWISE = (
    "the reference changes its inputs in place, and this kernel leaves them with other content: where that change is "
    "wanted, the kernel does less than was asked; return the changed tensor too, and it is compared"
)
LAID_OUT_ANEW = (
    "its contract asks for another memory layout of {names} than the reference is given: the copy is made before the "
    "clock runs, and the time is without it"
)
IMAGES = 6
"""Copies of a window's bytes at one time: the arena, its image, the snapshot, the answers; the null runner's two."""

Outputs = list[torch.Tensor]


class Rounds:
    """The rounds of one job. `contenders` are the reference (where there is one) and the candidate, in that order.

    `advice` is what to say beside a wrong answer where nothing better is known.
    """

    def __init__(
        self,
        contenders: list[KernelRun],
        inputs: TrialInputs,
        example: dict[str, Arguments],
        bench: WorkerContext,
        request: Request,
        deadline: float,
        advice: str | None = None,
    ) -> None:
        self.contenders = contenders
        self.candidate = contenders[-1]
        self.inputs = inputs
        self.example = example
        self.bench = bench
        self.request = request
        self.deadline = deadline
        self.tolerance = requested(request.atol, request.rtol)
        self.weak: list[str] = []
        self._advice = advice
        self._changes_otherwise = False
        self._precision: dict[str, Any] | None = None
        self._hint: str | None = None
        self._where: dict[str, Any] | None = None
        self._filled = 0
        self._compared = Tally()
        self._first_outputs: dict[str, list[Outputs]] = {}
        self._first_call: Arguments = []
        self._sample = SampledCall()
        self._edges = Edges(contenders[0], self.candidate, bench, self.tolerance)

    @property
    def doubts(self) -> list[str]:
        """What the candidate's time is to be read with: sentences about what was asked and what was done."""
        names = self.inputs.handed_out.laid_out_anew
        return [
            *self.weak,
            *filter(None, [self._edges.said]),
            *([CHANGES_OTHERWISE] if self._changes_otherwise else []),
            *([LAID_OUT_ANEW.format(names=", ".join(names))] if names else []),
        ]

    @property
    def reference_outputs(self) -> Outputs:
        """What the reference answered to a first call that was validated."""
        return self._first_outputs[self.contenders[0].role][0]

    @property
    def right(self) -> bool:
        """Whether the candidate has given no wrong answer so far."""
        return self.candidate.comparison is None or self.candidate.comparison.passed

    def validate(self) -> None:
        """A few calls on fresh inputs, nothing timed; the candidate's comparison is its first verdict."""
        sets = self.request.budget.effort.validation_sets
        slots = self.slots(max(min(sets, self.memory() // max(self.bytes_per_call(), 1)), 1))
        self.fill(slots)
        windows = {c.role: self.shoot(c, slots) for c in self.contenders}
        for contender in self.contenders:
            contender.upper_bound_ms = windows[contender.role].elapsed_ms / slots[contender.role].calls
        # Of two calls: enough to tell what a call surely writes.
        answers = {role: slots[role].read(window.snapshot) for role, window in windows.items()}
        self._first_outputs = {role: calls[:2] for role, calls in answers.items()}
        owner = self.contenders[0]
        outputs, *others = answers[owner.role]
        with owner.attribute_faults():
            check_written(owner, outputs)
        if len(self.contenders) > 1:
            inputs = leaves(slots[owner.role].arguments(0), torch.Tensor)
            self.weak = weak_reference(outputs, inputs, self.tolerance, [*others, *filter(None, [owner.returned])])
        self._first_call = slots[owner.role].arguments(0)
        self.judge(slots, windows)
        if self.right:
            with self.candidate.attribute_faults():
                check_first_call(self.contenders, windows)
        if not (self.right or self._edges.failed):
            self._doubt_reference(slots[owner.role], windows[owner.role])

    def fill(self, slots: dict[str, Slots]) -> None:
        """Fresh inputs for every call; where drawing has become too dear, drawn ones mixed, or the same again."""
        self.filling(slots)()

    def filling(self, slots: dict[str, Slots]) -> Callable[[], None]:
        """What fills them, for later. The seed of their windows is another at once."""
        self._filled += 1
        for layout in slots.values():
            layout.seed = self.inputs.window_seed(self._filled)
        return lambda: self._fill(slots)

    def _fill(self, slots: dict[str, Slots]) -> None:
        calls = slots[self.candidate.role].calls
        again = slots[self.candidate.role].filled and not self.inputs.affordable
        first, *others = slots.values()
        # Where both are called with the very same, it is written once, and copied in one go.
        twins = [layout for layout in others if self.inputs.handed_out.shared and layout.can_copy_from(first)]
        filled = {role: layout for role, layout in slots.items() if layout not in twins}
        made = 0
        # From each only as many as are left when its turn comes.
        for source in [self.inputs.mixed] if again else [self.inputs.draw, self.inputs.mixed]:
            for batch in source(calls - made):
                for role, layout in filled.items():
                    batch.fill(role, layout, made)
                made += len(batch)
        self.inputs.reused += calls - made
        if not again:
            for layout in filled.values():
                layout.fill(made, [layout.arguments(call % made) for call in range(made, calls)])
        for twin in twins:
            twin.copy_from(first)

    def shoot(self, contender: KernelRun, slots: dict[str, Slots], **options: Unpack[WindowOptions]) -> Window:
        """One window of that contender over what its slots were filled with."""
        with contender.attribute_faults():
            return undisturbed_window(contender, self.contenders, slots[contender.role], self.bench.device, **options)

    def judge(self, slots: dict[str, Slots], windows: dict[str, Window], advice: str | None = None) -> None:
        """Compares every call's outputs, in full. Without a reference there is nothing to compare with."""
        with self.candidate.attribute_faults():
            check_guards(slots[self.candidate.role], windows[self.candidate.role])
        if len(self.contenders) == 1:
            return
        reference, candidate = self.contenders
        with candidate.attribute_faults():
            check_inputs(windows[reference.role], windows[candidate.role])
        known = all(window.inputs_changed is not None for window in windows.values())
        if known and windows[reference.role].inputs_changed and not self._changes_otherwise:
            self._changes_otherwise = left_otherwise(self.contenders, slots, self.tolerance)
        expected, actual = (slots[c.role].read_stacked(windows[c.role].snapshot) for c in (reference, candidate))
        self._sample.offer(slots[reference.role], expected, actual)
        found = compare_stacked(expected, actual, self.tolerance)
        found = self._edges.without(found, slots[reference.role], expected, actual, self.deadline)
        self._compared.add(found)
        first = next((call for call, said in enumerate(found) if not said.passed), None)
        if first is not None and self._where is None:
            wanted, given = ([stack[first] for stack in outputs] for outputs in (expected, actual))
            self._where = mismatch_map(wanted, given, self.tolerance)
            self._hint = (
                self._hint
                or never_written(candidate, given)
                or other_order(wanted, given, self.tolerance)
                or tied(wanted, given)
                or advice
                or self._advice
            )
        self._note_comparison()

    def note(self, found: CallComparison) -> None:
        """One more compared call, judged elsewhere."""
        self._compared.add([found])
        self._note_comparison()

    def postpone(self, seconds: float) -> None:
        """The job's deadline, by what it has waited for others."""
        self.deadline += seconds
        for contender in self.contenders:
            if contender.session is not None:
                contender.session.until(self.deadline)

    def look_at_precision(self) -> None:
        """Both answers to one call against the same call in float64, where the reference is torch and can be run so.

        Nothing is known where that fails or takes too long; whoever asks its runner for more sets the deadline anew.
        """
        reference = self.contenders[0]
        if len(self.contenders) == 1 or reference.session is None or reference.kernel.kernel_type != KernelType.TORCH:
            return
        if not self.request.thorough:
            return
        reference.session.runner.deadline = min(self.deadline, time.monotonic() + PRECISION_S)
        try:
            exact = reference.session.double(self._sample.arguments)
        except KernelFault:
            return
        ours, theirs = self._sample.actual, self._sample.expected
        if exact is not None and len(exact) == len(ours) == len(theirs):
            found = precision_finding(exact, theirs, ours)
            self._precision = dataclasses.asdict(found) if found is not None else None
            self._note_comparison()

    def written_bytes(self, contender: KernelRun) -> int:
        """What a call of that contender surely writes; 0 where nothing is sure."""
        outputs = self._first_outputs.get(contender.role, [])
        io = contender.kernel.io
        if contender.probe is None or len(outputs) < 2:
            return 0
        if not contender.probe.returned and io is not None:
            pure = [
                t for i, t in zip(contender.output_arguments, outputs[0], strict=True) if io.args[i].role == "output"
            ]
            return in_place_bytes(pure)
        given = leaves(self._first_call, torch.Tensor)  # Both sides' inputs, in whichever order.
        return returned_bytes(outputs[0], outputs[1], given) if contender.session is not None else 0

    def tensor_bytes(self, contender: KernelRun) -> int:
        """Of the tensors that a call is given and returns, each once."""
        given = leaves(self.example[contender.role], torch.Tensor)
        answers = self._first_outputs.get(contender.role, [[]])[0] if contender.returned else []
        return sum(tensor.numel() * tensor.element_size() for tensor in [*given, *answers])

    def slots(self, calls: int) -> dict[str, Slots]:
        """A layout of that many calls for each contender."""
        return {c.role: c.slots(calls, self.example[c.role], self.bench.device.name) for c in self.contenders}

    def bytes_per_call(self) -> int:
        """Of the contender that needs the most."""
        return max(bytes_per_call(self.example[c.role], c.returned) for c in self.contenders)

    def memory(self) -> int:
        """Bytes that one contender's window may take, of what is allowed to all the copies of it."""
        return self.bench.arena_memory // (IMAGES * len(self.contenders))

    def _doubt_reference(self, slots: Slots, first: Window) -> None:
        """Whether the reference agrees with itself: no kernel can agree with one that answers at random."""
        slots.seed += 1
        again = self.shoot(self.contenders[0], {self.contenders[0].role: slots})
        one, other = (slots.read_stacked(window.snapshot) for window in (first, again))
        if not agree(one, other, self.tolerance):
            self._hint = RANDOM_REFERENCE
            self._note_comparison()

    def _note_comparison(self) -> None:
        found = self._compared.comparison
        message = f"{found.message}; {self._hint}" if self._hint and found.message else found.message
        self.candidate.comparison = dataclasses.replace(
            found,
            message=message,
            weak_reference=self.weak,
            precision=self._precision,
            layout=self._layout(),
            where=self._where,
        )

    def _layout(self) -> list[str]:
        """Where the candidate returns its answer in another memory layout: right, but its reader should know."""
        expected, actual = (contender.returned for contender in self.contenders)
        return [
            f"output {index} has strides {list(got.stride())}, the reference's {list(want.stride())}"
            for index, (want, got) in enumerate(zip(expected, actual, strict=False))
            if want.shape == got.shape and want.stride() != got.stride()
        ]
