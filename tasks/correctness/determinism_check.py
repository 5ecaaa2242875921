"""Checks whether the candidate gives the same bits on the same inputs, and for the same rows in other batches.

The kernel is its own oracle, so the check needs no reference and no tolerance for its verdict. It runs as the last
request to the candidate's runner, because a batch of another size may make it fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from domain import value as values
from domain.determinism import Batch, BatchVerdict, Determinism, OutputRepeats
from domain.fault import KernelFault
from domain.flags.codes import TIMEOUT_NEAR
from domain.gradients import GradientPlan, forward_output_count
from domain.result import Status
from profiling.window.call_buffers import Slots
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.trials import Outputs, Trials
from tasks.correctness.write_checks import check_guards
from tasks.runtime.kernel_run import Stopped
from validation.compare.bitwise import blocks, differing
from validation.compare.comparison import compare
from validation.evidence.determinism import PIECE, fingerprint, merged
from validation.seeds import derive_seed

CHECK_S = 10.0
"""Maximum time of the check, in s, beside the drawing of two input sets."""
WINDOWS, MAX_CALLS = 4, 16
"""Windows on the same inputs, and the maximum number of calls in each: 64 calls, if memory and time allow."""
NO_BATCH = "the outputs and an input have no first dimension of the same size, two or more"
CONTRACT_FIXES_SHAPES = "no other size was tried: the contract fixes the shapes"


class DeterminismCheck:
    """The check of one candidate whose outputs are right, or have no reference.

    `seed` gives the inputs; all processes of a job have the same, so that their outputs can be compared.
    """

    def __init__(self, trials: Trials, seed: int) -> None:
        self._trials = trials
        self._seed = seed
        self._candidate = trials.candidate

    def run(self) -> Determinism:
        """Never fails the candidate: a call that fails here leaves the rest untested, with the reason."""
        return merged([self._check()])

    def _check(self) -> Determinism:
        candidate, trials = self._candidate, self._trials
        if trials.memory_plan.is_large:
            return Determinism(untested="the calls are too large for further copies")
        if not trials.budget.fits(CHECK_S):
            return Determinism(untested=TIMEOUT_NEAR)
        for kernel_run in trials.kernel_runs:
            kernel_run.open_session.set_deadline(trials.budget.within(CHECK_S))
        try:
            first, other = self._two_sets()
            slots = trials.slots(self._calls_per_window())[candidate.role]
            outputs, findings = self._repeat(slots, first)
        except KernelFault as fault:
            return Determinism(untested=_reason(fault))
        except Stopped:
            return Determinism(untested=self._withdraw_faults())
        try:
            batch = self._try_batches(slots, first, other, outputs)
        except KernelFault as fault:
            reason = _reason(fault, failed="the kernel failed on rows of two input sets: ")
            batch = Batch(BatchVerdict.UNTESTED, reason=reason)
        return Determinism(1, findings, batch)

    def _withdraw_faults(self) -> str:
        """Takes back the fault of a kernel that made no inputs for this check, perhaps as an earlier one ended it."""
        reasons = []
        for kernel_run in self._trials.kernel_runs:
            if (fault := kernel_run.fault) is not None:
                kernel_run.fault = None
                reasons.append(_reason(fault, failed=f"the {kernel_run.role} made no inputs: "))
        return "; ".join(reasons)

    def _calls_per_window(self) -> int:
        """As many as the memory allows, and a third of the check's time: one window more calls other batches."""
        by_memory = self._trials.memory() // max(self._trials.bytes_per_call(), 1)
        by_time = CHECK_S * 1e3 / 3 / (WINDOWS + 1) / max(self._candidate.estimate_ms, 1e-3)
        return max(1, min(MAX_CALLS, by_memory, int(by_time)))

    def _two_sets(self) -> tuple[Arguments, Arguments]:
        """Two input sets of the candidate, in memory of their own."""
        owner, device = self._trials.kernel_runs[0], self._trials.worker.device.name
        sources = [
            TrialInputs(owner, self._candidate, device, derive_seed(self._seed, "set", number)) for number in range(2)
        ]
        plan = owner.gradients
        try:
            if plan is not None:  # Its scale is that of this process's own inputs: others would have other bits.
                owner.gradients = None
                found = owner.open_session.differentiable(sources[0].of_owner())
                owner.gradients = replace(plan, scale=found.scale)
            first, other = (source.first() for source in sources)
        finally:
            owner.gradients = plan
        return first[self._candidate.role], other[self._candidate.role]

    def _repeat(self, slots: Slots, arguments: Arguments) -> tuple[Outputs, list[OutputRepeats]]:
        first: Outputs = []
        differing_calls: list[int] = []
        largest: list[float | None] = []
        for _ in range(WINDOWS):
            stacks = self._call(slots, arguments)
            if not first:
                first = [stack[0].clone() for stack in stacks]
                differing_calls, largest = [0] * len(first), [0.0] * len(first)
            for index, (stack, expected) in enumerate(zip(stacks, first, strict=True)):
                unlike = differing(stack, expected.expand_as(stack), PIECE).nonzero().flatten().tolist()
                differing_calls[index] += len(unlike)
                for call in unlike:
                    largest[index] = _larger(largest[index], stack[call], expected)
        calls = WINDOWS * slots.calls
        return first, [
            OutputRepeats(calls, count, most, fingerprint(output, self._seed))
            for output, count, most in zip(first, differing_calls, largest, strict=True)
        ]

    def _try_batches(self, slots: Slots, first: Arguments, other: Arguments, outputs: Outputs) -> Batch:
        """Rows of the first set beside rows of the other one, then alone in smaller batches."""
        plan = self._trials.kernel_runs[0].gradients
        rows = batch_size(first, outputs[: forward_output_count(plan, len(outputs))])
        if rows is None:
            return Batch(BatchVerdict.UNTESTED, reason=NO_BATCH)
        of_rows = outputs_of_rows(plan, first, len(outputs), rows)
        generator = torch.Generator().manual_seed(derive_seed(self._seed, "rows"))
        half = torch.randperm(rows, generator=generator)[: max(1, rows // 2)].sort().values.to(outputs[0].device)
        beside_others = self._call(slots, mixed_rows(first, other, half, rows))
        expected = [outputs[index][half] for index in of_rows]
        actual = [beside_others[index][0][half] for index in of_rows]
        if not self._close(expected, actual):
            return Batch(BatchVerdict.UNTESTED, reason="rows of the outputs depend on other rows of the inputs")
        differing_rows = _unlike_rows(expected, actual)
        sizes: list[int] = []
        reason: str | None
        try:
            for size in self._sizes(rows):
                expected = [outputs[index][:size] for index in of_rows]
                probed = self._candidate.open_session.probe(first_rows(first, rows, size), 1).outputs
                # It may return fewer outputs for fewer rows.
                if len(probed) != len(outputs) or not self._close(expected, [probed[index] for index in of_rows]):
                    raise KernelFault(Status.UNSUPPORTED, "its outputs are others, so the size is part of the task")
                sizes.append(size)
                differing_rows = max(differing_rows, _unlike_rows(expected, [probed[index] for index in of_rows]))
            reason = None if sizes else CONTRACT_FIXES_SHAPES
        except KernelFault as fault:
            reason = f"no batch of {size} was tried: {_reason(fault)}"
        verdict = BatchVerdict.VARIANT if differing_rows else BatchVerdict.INVARIANT
        return Batch(verdict, rows, differing_rows, sizes, reason)

    def _sizes(self, rows: int) -> list[int]:
        return [] if self._candidate.kernel.io is not None else sorted({rows // 2, 1}, reverse=True)

    def _close(self, expected: Outputs, actual: Outputs) -> bool:
        return compare(expected, actual, self._trials.tolerance).passed

    def _call(self, slots: Slots, arguments: Arguments) -> list[torch.Tensor]:
        """The outputs of a window on those arguments, [calls, ...] each."""
        slots.broadcast(arguments)
        slots.seed = derive_seed(self._seed, "window")
        window = self._candidate.open_window_session.window(slots)
        check_guards(slots, window)
        return slots.read_stacked(window.snapshot)


def batch_size(arguments: Arguments, outputs: Outputs) -> int | None:
    """The first dimension that all outputs and at least one input have in common, if it is two or more."""
    sizes = {out.shape[0] if out.dim() else 0 for out in outputs}
    if len(sizes) != 1:
        return None
    (rows,) = sizes
    inputs = values.leaves(arguments, torch.Tensor)
    return rows if rows > 1 and any(_has_rows(tensor, rows) for tensor in inputs) else None


def outputs_of_rows(plan: GradientPlan | None, arguments: Arguments, count: int, rows: int) -> list[int]:
    """Indexes of the outputs that have a row for each row of the inputs, out of `count`.

    Gradients of parameters, and of inputs without rows, are sums over the rows.
    """
    if plan is None:
        return list(range(count))
    inputs = values.leaves(arguments, torch.Tensor)
    outputs = forward_output_count(plan, count)
    gradients = [outputs + at for at, index in enumerate(plan.inputs) if _has_rows(inputs[index], rows)]
    return [*range(outputs), *gradients]


def mixed_rows(first: Arguments, other: Arguments, half: torch.Tensor, rows: int) -> Arguments:
    """The `half` rows of the first set beside the other set's; inputs without rows are the first set's."""
    others = iter(values.leaves(other, torch.Tensor))

    def mix(tensor: torch.Tensor) -> torch.Tensor:
        from_other = next(others)
        if not _has_rows(tensor, rows):
            return tensor
        mixed = from_other.clone()
        mixed[half.to(mixed.device)] = tensor[half.to(tensor.device)]
        return mixed

    arguments: Arguments = values.replace(first, torch.Tensor, mix)
    return arguments


def first_rows(arguments: Arguments, rows: int, size: int) -> Arguments:
    smaller: Arguments = values.replace(
        arguments, torch.Tensor, lambda tensor: tensor[:size].clone() if _has_rows(tensor, rows) else tensor
    )
    return smaller


def _reason(fault: KernelFault, failed: str = "") -> str:
    """The fault's message behind `failed`, except for the deadline of this check, which is not the request's
    `timeout`."""
    late = fault.status is Status.TIMEOUT
    return f"its calls took more than the {CHECK_S:g} s of this check" if late else f"{failed}{fault.message}"


def _has_rows(tensor: torch.Tensor, rows: int) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == rows


def _unlike_rows(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> int:
    """The largest number of rows of an output that have other bits."""
    pairs = zip(expected, actual, strict=True)
    return max((int(differing(one, other, PIECE).sum()) for one, other in pairs), default=0)


def _larger(before: float | None, one: torch.Tensor, other: torch.Tensor) -> float | None:
    """The larger of `before` and the largest difference between both tensors; None if that is not finite."""
    if before is None or one.dtype == torch.bool:
        return before
    kind = torch.complex128 if one.is_complex() else torch.float64
    most = max(float((a.to(kind) - b.to(kind)).abs().max()) for a, b in blocks([one, other], PIECE))
    return max(before, most) if most < float("inf") else None
