"""Calls a kernel forward and backward, in the runner: inputs and cotangents in, outputs and gradients out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import torch

from domain.fault import KernelFault
from domain.gradients import MOST_SCALE, GradientPlan
from domain.result import Status
from domain.value import TensorRef, replace

Forward = Callable[[list[Any]], Any]
NO_BACKWARD = (
    "output {index} does not require grad, so the kernel has no backward there: compute it by differentiable "
    "operations, or give its operation one (torch.autograd.Function, torch.library.register_autograd); where the task "
    "needs none there, let the reference detach that output"
)
NO_GRADIENT = "its backward gives no gradient for {names}, where the reference's gives one"
MARK_INPUTS = (
    ": return it, or, where the task needs none there, let get_inputs() of the reference set requires_grad on the "
    "inputs that need one, which leaves out the others"
)
FROZEN = (
    "its {which} not require grad, and the reference's has a gradient: leave parameters as torch makes them, without "
    "requires_grad_(False)"
)
NO_OUTPUT = "no output requires grad, so there are no gradients to compare: compute it by differentiable operations"
LARGEST = 64.0
"""Half the maximum root mean square of a gradient whose cotangents are scaled: float16 ends at 65504."""
OTHER_OUTPUT = "output {index} is {actual}, and the reference's is {expected}"


def call_with_gradients(
    plan: GradientPlan, args: list[Any], forward: Forward, parameters: list[torch.nn.Parameter]
) -> Any:
    """The outputs and a list of the plan's gradients; the outputs alone where no output has a cotangent.

    Raises KernelFault where an output or a gradient of the plan is missing, and what the kernel raises.
    """
    end = len(args) - 1 - len(plan.outputs)
    cotangents = args[end:-1]
    with torch.enable_grad():
        tracked, leaves = _tracked(args[:end], lambda number, _: number in plan.inputs)
        result = forward(tracked)
        if not plan.outputs:
            return _detached(result)
        named = zip(plan.parameters, parameters, strict=True)
        if frozen := [f"parameter {name}" for name, parameter in named if not parameter.requires_grad]:
            which = f"{', '.join(frozen)} {'does' if len(frozen) == 1 else 'do'}"
            raise KernelFault(Status.RUNTIME_ERROR, FROZEN.format(which=which), compiled=True)
        outputs = list(_tensors(result))
        differentiated = [_output(outputs, *pair) for pair in zip(plan.outputs, cotangents, strict=True)]
        requiring_grad = [*leaves.values(), *parameters]
        gradients = torch.autograd.grad(differentiated, requiring_grad, cotangents, allow_unused=True)
    names = [*(f"input {number}" for number in leaves), *(f"parameter {name}" for name in plan.parameters)]
    if missing := [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]:
        advice = MARK_INPUTS if any(name.startswith("input ") for name in missing) else ""
        message = NO_GRADIENT.format(names=", ".join(missing)) + advice
        raise KernelFault(Status.RUNTIME_ERROR, message, compiled=True)
    return [_detached(result), list(gradients)]


def find_gradients(
    args: list[Any], forward: Forward, module: torch.nn.Module | None, marked: list[bool]
) -> dict[str, Any]:
    """The gradients that a call's backward gives, as the fields of a plan.

    Every floating input is tried, or only those of `marked` if any is. Raises KernelFault if no output requires grad.
    """

    def is_wanted(number: int, tensor: torch.Tensor) -> bool:
        possible = (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1
        return possible and (marked[number] if any(marked) and len(marked) > number else True)

    with torch.enable_grad():
        tracked, leaves = _tracked(args, is_wanted)
        outputs = list(_tensors(forward(tracked)))
        numbers = [number for number, output in enumerate(outputs) if output.requires_grad]
        if not numbers:
            raise KernelFault(Status.RUNTIME_ERROR, NO_OUTPUT, compiled=True)
        named = dict(module.named_parameters()) if module is not None else {}
        learned = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        differentiated = [outputs[number] for number in numbers]
        cotangents = list(map(_random_signs, differentiated))
        requiring_grad = [*leaves.values(), *learned.values()]
        gradients = torch.autograd.grad(differentiated, requiring_grad, cotangents, allow_unused=True)
    present = [gradient is not None for gradient in gradients]
    return {
        "inputs": [number for number, there in zip(leaves, present, strict=False) if there],
        "parameters": [name for name, there in zip(learned, present[len(leaves) :], strict=True) if there],
        "outputs": numbers,
        "cotangents": [_contiguous(output) for output in differentiated],
        "scale": _scale([gradient for gradient in gradients if gradient is not None]),
    }


def _random_signs(output: torch.Tensor) -> torch.Tensor:
    """Cotangents of magnitude one: one normal draw for a scalar output may be near zero, and its scale too large."""
    return torch.where(torch.rand(output.shape, device=output.device) < 0.5, -1.0, 1.0).to(output.dtype)


def _scale(gradients: list[torch.Tensor]) -> float:
    """The power of two that raises the smallest gradient to a root mean square of one, and none to over 128."""
    sizes = [float(gradient.abs().double().square().mean().sqrt()) for gradient in gradients if gradient.numel()]
    sizes = [size for size in sizes if 0 < size < math.inf]
    if not sizes or min(sizes) >= 1:
        return 1.0
    return max(2.0 ** math.floor(math.log2(min(1 / min(sizes), LARGEST / max(sizes), MOST_SCALE / 2))), 0.5) * 2


def _tracked(
    args: list[Any], is_wanted: Callable[[int, torch.Tensor], bool]
) -> tuple[list[Any], dict[int, torch.Tensor]]:
    """The arguments with leaves of the graph in place of the wanted tensors, and these by their number."""
    leaves: dict[int, torch.Tensor] = {}
    numbers = count()

    def track(tensor: torch.Tensor) -> torch.Tensor:
        number = next(numbers)
        if not is_wanted(number, tensor):
            return tensor
        leaves[number] = tensor.detach().requires_grad_()
        return leaves[number]

    return replace(args, torch.Tensor, track), leaves


def _output(outputs: list[torch.Tensor], index: int, cotangent: torch.Tensor) -> torch.Tensor:
    output = outputs[index] if index < len(outputs) else None
    if output is None or output.shape != cotangent.shape or output.dtype != cotangent.dtype:
        actual = "missing" if output is None else _form(output)
        message = OTHER_OUTPUT.format(index=index, actual=actual, expected=_form(cotangent))
        raise KernelFault(Status.WRONG_RESULT, message, compiled=True)
    if not output.requires_grad:
        raise KernelFault(Status.RUNTIME_ERROR, NO_BACKWARD.format(index=index), compiled=True)
    return output


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an output, depth first; mappings and dataclasses in the order of their names on both sides."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Mapping):
        value = vars(value)
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value, key=str)]
    for member in value if isinstance(value, tuple | list) else ():
        yield from _tensors(member)


def _detached(result: Any) -> Any:
    """The outputs without their graph, which would keep a call's activations until the window ends."""
    return replace(result, torch.Tensor, torch.Tensor.detach)


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _contiguous(output: torch.Tensor) -> TensorRef:
    dtype = str(output.dtype).removeprefix("torch.")
    return TensorRef(dtype, tuple(output.shape), torch.empty(output.shape, device="meta").stride(), 0)
