"""Checks of memory writes, whatever the values: outputs never written, writes out of bounds, modified inputs.

Each check raises KernelFault (WRONG_RESULT), inside an `attribute_faults` block of the caller.
"""

from __future__ import annotations

import torch

from domain.contract import IOContract
from domain.fault import KernelFault
from domain.result import Status
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Window
from tasks.runtime.kernel_run import KernelRun
from validation.compare.comparison import agree, compare_stacked
from validation.compare.rounding_boundary import FEWEST, SHARE
from validation.compare.tolerance import EXACT, Tolerance
from validation.inputs.poison_fill import unwritten_fraction


def check_written(owner: KernelRun, outputs: list[torch.Tensor]) -> None:
    """Outputs in a contract's arguments start as poison: one that is still all poison was never written."""
    io = owner.kernel.io
    for index, tensor in zip(owner.output_arguments, outputs, strict=False):
        if io is not None and io.args[index].role == "output" and unwritten_fraction(tensor) == 1.0:
            raise KernelFault(
                Status.WRONG_RESULT,
                f"the kernel wrote nothing into its output {io.args[index].name!r}: check the launch and its bounds",
            )


def unwritten_hint(kernel_run: KernelRun, outputs: list[torch.Tensor]) -> str | None:
    """A hint on the unwritten elements of a wrong call's outputs; None if the kernel wrote all of them."""
    io = kernel_run.kernel.io
    for index, tensor in zip(kernel_run.output_arguments, outputs, strict=False):
        if io is not None and io.args[index].role == "output" and (share := unwritten_fraction(tensor)) > 0:
            return (
                f"{round(share * tensor.numel())} of the {tensor.numel()} elements of {io.args[index].name!r} were "
                "never written in that call and hold their initial content: check the grid and the last block's mask"
            )
    return None


def check_guards(slots: Slots, window: Window) -> None:
    if slots.overrun(window.snapshot):
        raise KernelFault(
            Status.WRONG_RESULT, "the kernel wrote outside its outputs: check the mask or bound of its last block"
        )


OWN_OUTPUTS = "copy them first, or, if they are its outputs, mark the arguments inout and return nothing"
OTHER_CONTENT = (
    "the reference changes input tensor {number} in place, and the kernel changes it otherwise: {wrong} of {count} "
    "elements, first at index {index}: expected {expected}, got {actual}; write what the reference writes there, or "
    "leave the input as it is"
)
OTHER_INPUT = (
    "the kernel changes input tensor {number}, and the reference does not, which changes others: {wrong} of {count} "
    "elements, first at index {index}: expected {expected}, got {actual}; copy it first"
)
OF_BACKWARD = "write into new tensors, because autograd may pass the same gradient to other operations"


def check_inputs(reference: Window, candidate: Window, *, backward: bool) -> None:
    """A candidate may modify its inputs only if its contract says inout, or if the reference modifies them too.

    `backward` says whether the gradients of the outputs are among the inputs.
    """
    if candidate.inputs_changed and not reference.inputs_changed:
        what, advice = ("inputs, or the gradients of its outputs", OF_BACKWARD) if backward else ("inputs", OWN_OUTPUTS)
        message = f"the kernel changed its {what}, but the reference does not; {advice}"
        raise KernelFault(Status.WRONG_RESULT, message)


def check_first_call(kernel_runs: list[KernelRun], windows: dict[str, Window]) -> None:
    """Check repeated calls on the same inputs before the first window, as both runners report them."""
    differ = [kernel_run.probe.first_call_differs for kernel_run in kernel_runs if kernel_run.probe is not None]
    inputs_unchanged = all(window.inputs_changed is False for window in windows.values())
    if differ == [False, True] and inputs_unchanged:
        raise KernelFault(
            Status.WRONG_RESULT,
            "its first call gives other outputs than a later call with the same inputs, unlike the reference: look for "
            "state that is set up too late or not cleared, such as what an autotuner's runs add to",
        )


def input_mutation_differs(
    kernel_runs: list[KernelRun], slots: dict[str, Slots], tolerance: Tolerance, matched_ratio: float
) -> bool:
    """Whether the candidate leaves other content in its inputs than the reference, which modifies its own.

    A candidate may leave an input as it was. Raises KernelFault where it changes one, and otherwise than the reference
    does, in more elements than rounding explains. Compares the arenas after the window. Kernels that get other inputs,
    or the same in another order, have no common form to compare.
    """
    layouts = [slots[kernel_run.role] for kernel_run in kernel_runs]
    arenas = [c.session.arena for c in kernel_runs if c.session is not None and c.session.arena is not None]
    if len(arenas) < len(layouts) or not _name_alike([kernel_run.kernel.io for kernel_run in kernel_runs]):
        return False
    drawn, before = (layout.stacked_inputs(layout.image) for layout in layouts)
    if len(drawn) != len(before) or not all(
        agree([one], [other], EXACT) for one, other in zip(drawn, before, strict=True)
    ):
        return False
    after = [layout.stacked_inputs(arena.bytes) for layout, arena in zip(layouts, arenas, strict=True)]
    found = False
    for number, (original, expected, actual) in enumerate(zip(before, *after, strict=True)):
        if agree([expected], [actual], tolerance):
            continue
        found = True
        if not agree([original], [actual], tolerance):
            _check_other_content(number, original, expected, actual, tolerance, matched_ratio)
    return found


def _name_alike(contracts: list[IOContract | None]) -> bool:
    """Whether contracts name the same inputs in one order. A kernel without a contract gets the other's order."""
    names = [[arg.name for arg in io.args if arg.is_tensor and arg.role == "input"] for io in contracts if io]
    return all(each == names[0] for each in names)


def _check_other_content(
    number: int,
    before: torch.Tensor,
    expected: torch.Tensor,
    actual: torch.Tensor,
    tolerance: Tolerance,
    matched_ratio: float,
) -> None:
    """Rounding explains a share of what the reference changes: of a cache that may be one row. It never explains all
    of it, as where a counter is wrong."""
    is_quantised = not (expected.is_floating_point() or expected.is_complex()) or expected.element_size() == 1
    share = SHARE if is_quantised else 1 - matched_ratio
    changes = compare_stacked([before], [expected], EXACT)
    for change, call in zip(changes, compare_stacked([expected], [actual], tolerance), strict=True):
        changed, wrong = change.mismatch_count, call.mismatch_count
        if wrong and (wrong >= changed or wrong > max(FEWEST, share * changed)):
            place = call.first_mismatch or {}
            raise KernelFault(
                Status.WRONG_RESULT,
                (OTHER_CONTENT if changed else OTHER_INPUT).format(
                    number=number, wrong=wrong, count=call.element_count, **place
                ),
            )
