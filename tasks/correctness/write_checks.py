"""What makes a kernel wrong whatever its values are: an output never written, a write outside, changed inputs.

Each check raises KernelFault (WRONG_RESULT), inside an `attribute_faults` block of the caller.
"""

from __future__ import annotations

import torch

from domain.fault import KernelFault
from domain.result import Status
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Window
from tasks.runtime.kernel_run import KernelRun
from validation.compare.comparison import agree
from validation.compare.tolerance import Tolerance
from validation.inputs.poison_fill import untouched


def check_written(owner: KernelRun, outputs: list[torch.Tensor]) -> None:
    """Outputs in a contract's arguments begin as poison: one that is still all poison was never written."""
    io = owner.kernel.io
    for index, tensor in zip(owner.output_arguments, outputs, strict=False):
        if io is not None and io.args[index].role == "output" and untouched(tensor) == 1.0:
            raise KernelFault(
                Status.WRONG_RESULT,
                f"the kernel wrote nothing into its output {io.args[index].name!r}: check the launch and its bounds",
            )


def never_written(contender: KernelRun, outputs: list[torch.Tensor]) -> str | None:
    """How much of a wrong call's outputs is as it was before the call; None where the kernel has written all of it."""
    io = contender.kernel.io
    for index, tensor in zip(contender.output_arguments, outputs, strict=False):
        if io is not None and io.args[index].role == "output" and (share := untouched(tensor)) > 0:
            return (
                f"{round(share * tensor.numel())} of the {tensor.numel()} elements of {io.args[index].name!r} were "
                "never written in that call and hold what outputs begin as: check the grid and the last block's mask"
            )
    return None


def check_guards(slots: Slots, window: Window) -> None:
    if slots.overrun(window.snapshot):
        raise KernelFault(
            Status.WRONG_RESULT, "the kernel wrote outside its outputs: check the mask or bound of its last block"
        )


def check_inputs(reference: Window, candidate: Window) -> None:
    """A candidate may change its inputs only where its contract says inout, or where the reference does it too."""
    if candidate.inputs_changed and not reference.inputs_changed:
        raise KernelFault(
            Status.WRONG_RESULT,
            "the kernel changed its inputs, which the reference leaves as they are; copy them first, or, where they "
            "are its answer, mark the arguments inout and return nothing",
        )


def check_first_call(contenders: list[KernelRun], windows: dict[str, Window]) -> None:
    """Of calls with the same inputs before the first window, by both runners' words; later ones are compared."""
    differ = [contender.probe.first_differs for contender in contenders if contender.probe is not None]
    untouched = all(window.inputs_changed is False for window in windows.values())
    if differ == [False, True] and untouched:
        raise KernelFault(
            Status.WRONG_RESULT,
            "its first call answers otherwise than a later one does to the same inputs, and the reference's does not: "
            "look for what is set up too late, or not cleared behind it (what an autotuner's runs add to, say)",
        )


def left_otherwise(contenders: list[KernelRun], slots: dict[str, Slots], tolerance: Tolerance) -> bool:
    """Whether the candidate has left its inputs with other content than the reference, which changes its own.

    As they lie in the arenas after the window. Where the two are not called alike, they have no common form.
    """
    layouts = [slots[contender.role] for contender in contenders]
    arenas = [c.session.arena for c in contenders if c.session is not None and c.session.arena is not None]
    if len(arenas) < len(layouts) or not layouts[1].can_copy_from(layouts[0]):
        return False
    ours, theirs = (layout.stacked_arguments(arena.bytes) for layout, arena in zip(layouts, arenas, strict=True))
    return not agree(ours, theirs, tolerance)
