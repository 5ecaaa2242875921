"""Guesses inputs for a source that gives none: tensors of one shape, tried by calling it."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from backends.base import Target
from backends.source.argument_binding import required_names
from backends.source.error_report import fault, summary, text_of
from backends.source.rng_state import seed_everything
from domain.fault import KernelFault
from domain.result import Status

Shape = tuple[int, ...]

PLAIN_SHAPES: tuple[Shape, ...] = ((1024, 1024), (16, 128, 128), (8, 16, 64, 64), (4096,), ())
"""Square first: elementwise work, `x @ x.T` and `a @ b` all accept it."""
BATCH, SEQUENCE = 8, 128
EXTENTS: dict[int, Shape] = {1: (256,), 2: (64, 64), 3: (16, 32, 32)}
"""Sizes of a signal, an image and a volume."""

GIVE_INPUTS = (
    "define get_inputs(), such as `def get_inputs(): return [torch.randn(256, 512)]`, or send `io`, such as "
    '`{"args": [{"name": "x", "type": "tensor", "tensor_spec": {"shape": [256, 512]}}]}`'
)


@dataclass(frozen=True)
class InputPlan:
    """A standard normal tensor of the same shape and dtype for every parameter, in calling order."""

    names: tuple[str, ...]
    shape: Shape
    dtype: torch.dtype

    def draw(self, seed: int, target: Target) -> list[Any]:
        seed_everything(seed)
        return [torch.randn(self.shape, dtype=torch.float32, device=target.device).to(self.dtype) for _ in self.names]

    def described(self) -> str:
        """The parameters with their guess, such as `x, y: float32 [4, 4] standard normal`."""
        if not self.names:
            return "no arguments"
        return f"{', '.join(self.names)}: {str(self.dtype).removeprefix('torch.')} {list(self.shape)} standard normal"


def find_plan(
    function: Callable[..., Any],
    signature: inspect.Signature | None,
    instance: Any,
    target: Target,
    seed: int,
    entry: str,
) -> InputPlan:
    """The first plan with which the function can be called; afterwards its module's buffers are as before.

    Raises KernelFault (RUNTIME_ERROR) with the last error when none fits. Raises the function's own exception where
    other inputs would not help: a bug in the source; no GPU, memory or compilation; or the same error for all inputs.
    """
    module = instance if isinstance(instance, torch.nn.Module) else torch.nn.Module()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    names = _arguments(signature)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.get_default_dtype())
    failures: list[tuple[InputPlan, Exception]] = []
    for shape in (*_weight_shapes(module), *PLAIN_SHAPES) if names else ((),):
        plan = InputPlan(names, shape, dtype)
        try:
            with torch.no_grad():
                function(*plan.draw(seed, target))
            if target.is_cuda:
                torch.cuda.synchronize()
        except Exception as error:
            if not _may_be_of_inputs(error, target):
                raise
            # The frames of its traceback would keep the inputs alive.
            traceback.clear_frames(error.__traceback__)
            failures.append((plan, error))
            continue
        for name, buffer in module.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
        return plan
    if len({summary(error) for _, error in failures}) == 1:
        raise failures[-1][1]
    raise _nothing_fits(entry, failures)


def _may_be_of_inputs(error: Exception, target: Target) -> bool:
    """Whether other inputs may avoid the error: it is no bug of the source, and the device is there and works."""
    # Triton's interpreter wraps what a kernel raised.
    if type(error).__name__ == "InterpreterError" and isinstance(error.__cause__, NameError):
        error = error.__cause__
    if isinstance(error, AttributeError):
        return isinstance(error.obj, torch.Tensor)
    # An unbound local may get its value in a branch for another shape.
    if isinstance(error, NameError | ImportError) and not isinstance(error, UnboundLocalError):
        return False
    if isinstance(error, KernelFault) or fault(error, "", Path(), target).status is not Status.RUNTIME_ERROR:
        return False
    return "CUDA error" not in text_of(error)


def _nothing_fits(entry: str, failures: list[tuple[InputPlan, Exception]]) -> KernelFault:
    plan, error = failures[0]
    return KernelFault(
        Status.RUNTIME_ERROR,
        f"could not determine inputs for {entry}: none of the {len(failures)} shapes tried fits; {GIVE_INPUTS}. "
        f"With {plan.described()}: {summary(error)}",
        "\n".join(f"{plan.described()}: {summary(error)}" for plan, error in failures),
        compiled=True,
    )


def _arguments(signature: inspect.Signature | None) -> tuple[str, ...]:
    """The names of the required parameters; the variadic one where none is required."""
    if signature is None:
        return ("x",)
    variadic = [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]
    return tuple(required_names(signature) or variadic)


def _weight_shapes(module: torch.nn.Module) -> list[Shape]:
    """Shapes that suit the module's first weight: its last extent counts features, that of a convolution channels."""
    weights = (parameter for parameter in module.parameters() if not is_lazy(parameter) and parameter.dim() > 0)
    weight = next(weights, None)
    if weight is None:
        return []
    if weight.dim() > 2:
        extent = EXTENTS.get(weight.dim() - 2)
        return [] if extent is None else [(BATCH, weight.shape[1], *extent)]
    features = weight.shape[-1]
    return [(BATCH, SEQUENCE, features), (BATCH * SEQUENCE, features)]
